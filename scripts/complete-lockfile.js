/**
 * Adds to package-lock.json the packages for other platforms that npm left out.
 *
 * Tools like biome and rolldown bring one optional package for each platform. npm leaves those out of the lockfile
 * that the registry at hand does not offer or that were not installed, and `npm ci` then refuses the lockfile
 * everywhere. An entry with the version and the platform is enough: npm fetches it only where it fits. Run this after
 * `npm install` has changed the lockfile; the tidy test says when it is needed.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./steps.js";

const path = join(root, "package-lock.json");
const lock = JSON.parse(readFileSync(path, "utf8"));
const systems = ["android", "darwin", "freebsd", "linux", "openharmony", "win32"];
const processors = ["arm", "arm64", "ppc64", "s390x", "wasm32", "x64"];

const added = [];
for (const [parent, entry] of Object.entries(lock.packages)) {
  for (const [name, version] of Object.entries(entry.optionalDependencies ?? {})) {
    if (isLocked(parent, name)) continue;
    lock.packages[`node_modules/${name}`] = { version, dev: true, optional: true, ...platformOf(name) };
    added.push(name);
  }
}
if (added.length > 0) {
  // npm sorts the entries by path, and would do so again at its next change.
  lock.packages = Object.fromEntries(
    Object.entries(lock.packages).sort(([a], [b]) => a.localeCompare(b, "en")),
  );
  writeFileSync(path, `${JSON.stringify(lock, undefined, 2)}\n`);
}
console.log(added.length === 0 ? "The lockfile is complete." : `Added ${added.join(", ")}.`);

/** Whether a package that `parent` asks for has an entry, its own or one further up. */
function isLocked(parent, name) {
  for (let at = parent; ; at = at.slice(0, Math.max(0, at.lastIndexOf("/node_modules/")))) {
    if (`${at === "" ? "" : `${at}/`}node_modules/${name}` in lock.packages) return true;
    if (at === "") return false;
  }
}

/** Where a package runs, which its name tells: `@rolldown/binding-linux-arm64-musl`. */
function platformOf(name) {
  const words = name.split("/").at(-1).split("-");
  const os = words.find((word) => systems.includes(word));
  const cpu = words.find((word) => processors.includes(word));
  if (cpu === undefined) throw new Error(`The platform of ${name} is not known: add its entry by hand.`);
  const libc = words.includes("musl") ? "musl" : words.includes("gnu") ? "glibc" : undefined;
  return { ...(os && { os: [os] }), cpu: [cpu], ...(libc && { libc: [libc] }) };
}
