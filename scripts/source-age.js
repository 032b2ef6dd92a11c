/** When sources were changed, for whoever makes something of them only where that is needed. */
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";

/**
 * When a file was changed; 0 where there is none.
 *
 * @param {string} path
 */
export function modifiedMs(path) {
  return existsSync(path) ? statSync(path).mtimeMs : 0;
}

/**
 * When the newest file or folder in a tree was changed. A removed file shows in its folder.
 *
 * @param {string} path
 * @returns {number}
 */
export function newestMs(path) {
  const stats = statSync(path);
  if (!stats.isDirectory()) return stats.mtimeMs;
  return Math.max(stats.mtimeMs, ...readdirSync(path).map((name) => newestMs(join(path, name))));
}
