/** Small disks in memory, which only root can mount. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { onTestFinished } from "vitest";
import { newFolder, testFolder } from "./folders.ts";

/** Mounts a disk on a folder of the present test, and takes it away afterwards. */
export function mountedFolder(options: string): string {
  const folder = testFolder();
  mount(folder, options);
  onTestFinished(() => unmount(folder));
  return folder;
}

/**
 * Whether disks can be mounted here. Where they cannot, it says loudly which tests are skipped; root in continuous integration is
 * expected to be able to, and so fails.
 */
export function canMount(
  tests: string,
  { attempt = mountOnce, isRoot = process.getuid?.() === 0, isCi = process.env["CI"] === "true" } = {},
): boolean {
  try {
    attempt();
    return true;
  } catch (error) {
    if (isRoot && isCi) throw error;
    skipped(tests, isRoot ? "mounting a disk is not allowed here" : "only root can mount a disk");
    return false;
  }
}

/** Says loudly that tests do not run here. */
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
