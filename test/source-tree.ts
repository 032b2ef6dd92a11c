/** The files of this repository, as the tests that read it see them. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Programs of the tests are compiled to `.tests/test`. */
const isCompiled = import.meta.url.includes("/.tests/");
export const root = fileURLToPath(new URL(isCompiled ? "../.." : "..", import.meta.url));

/** Names that git ignores, wherever they are. `.git` it ignores by itself. */
const ignored = new Set([
  ".git",
  ...readFileSync(join(root, ".gitignore"), "utf8")
    .split("\n")
    .map((line) => line.replace(/\/$/, ""))
    .filter((line) => line !== ""),
]);

function isIgnored(name: string): boolean {
  return ignored.has(name) || ignored.has(`*${name.slice(name.lastIndexOf("."))}`);
}

/** Every file below a folder, as paths with forward slashes, relative to the repository. */
export function filesBelow(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    if (isIgnored(entry.name)) return [];
    const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) return filesBelow(path);
    return entry.isFile() ? [path] : [];
  });
}

export function read(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

/** Everything that is written for people. */
export function documents(): string[] {
  return filesBelow("").filter((path) => path.endsWith(".md"));
}
