/** Small disks in memory, which only root can mount. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { onTestFinished } from "vitest";
import { newFolder, testFolder } from "./folders.ts";

/** Mounts a disk on a folder of the present test, and unmounts it afterwards. */
export function mountedFolder(options: string): string {
  const folder = testFolder();
  mount(folder, options);
  onTestFinished(() => unmount(folder));
  return folder;
}

/** Whether disks can be mounted here. If not, it names the tests that are skipped; in continuous integration root must be able to. */
export function canMount(tests: string): boolean {
  const isRoot = process.getuid?.() === 0;
  try {
    mountOnce();
    return true;
  } catch (error) {
    if (isRoot && process.env["CI"] === "true") throw error;
    skipped(tests, isRoot ? "mounting a disk is not allowed here" : "only root can mount a disk");
    return false;
  }
}

/** Warns that tests do not run here. */
export function skipped(tests: string, because: string): void {
  console.warn(`\n*** SKIPPED: ${tests}, because ${because}. ***\n`);
}

function mountOnce(): void {
  const folder = newFolder();
  try {
    mount(folder, "size=1m");
    unmount(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function mount(folder: string, options: string): void {
  execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", folder], { stdio: "pipe" });
}

function unmount(folder: string): void {
  execFileSync("umount", ["-l", folder]);
}
