import { existsSync, mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";

/**
 * Makes a folder and the missing ones above it. `mkdirSync` with `recursive` never returns if an existing folder refuses
 * new ones with ENOENT, as /proc does. Returns the uppermost folder that was made.
 */
export function makeFolder(path: string): string | undefined {
  if (isFolder(path)) return undefined;
  const above = dirname(path);
  const made = existsSync(above) ? undefined : makeFolder(above);
  try {
    mkdirSync(path);
  } catch (error) {
    // Another process may have made it meanwhile.
    if (!isFolder(path)) throw error;
  }
  return made ?? path;
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
