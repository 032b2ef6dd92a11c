/**
 * What the scripts share: running a step, saying how long it took, and stopping its process when we are stopped.
 *
 * Only Node's own modules are used, because this runs before anything is installed.
 */
import { spawn } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { descendantsOf, signalAll } from "./process-tree.js";
import { modifiedMs, newestMs } from "./source-age.js";

export const root = fileURLToPath(new URL("..", import.meta.url));

/** The oldest Node that Holdfast supports, as package.json says under `engines`. */
const OLDEST_NODE = [20, 19];

/** How long the processes of a step may take to end after we passed on a signal. */
const STOP_MS = 5_000;

/** @type {import("node:child_process").ChildProcess | undefined} */
let child;
/** @type {NodeJS.Signals | undefined} */
let stoppedBy;
/** What the step had started when we were stopped. @type {number[]} */
let stopping = [];

for (const signal of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) {
  process.on(signal, () => stop(signal));
}

// npm starts us through a shell, which a signal to npm ends without telling us.
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) stop("SIGTERM");
}, 500).unref();

/**
 * Passes a signal on to everything that the running step has started, and ends when the step has. A terminal signals
 * all of them by itself; whoever kills this process alone does not, and test runners forget their grandchildren.
 */
function stop(signal) {
  if (child?.pid === undefined) process.exit(exitCodeOf(signal));
  if (stoppedBy !== undefined) return;
  stoppedBy = signal;
  stopping = [child.pid, ...descendantsOf(child.pid)];
  signalAll(stopping, signal);
  setTimeout(() => signalAll(stopping, "SIGKILL"), STOP_MS).unref();
}

/** The exit code by which shells know that a signal ended a process. */
function exitCodeOf(signal) {
  return 128 + constants.signals[signal];
}

/** Ends with a plain sentence instead of a stack when this Node is too old to run anything here. */
export function checkNode() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_NODE;
  if (major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)) return;
  console.error(`Holdfast needs Node ${OLDEST_NODE.join(".")} or newer; this is ${process.versions.node}.`);
  process.exit(1);
}

/** Announces a step, runs it, and says how long it took. Resolves to whether it succeeded. */
export async function step(name, run) {
  console.log(`\n── ${name}`);
  const startMs = performance.now();
  const code = await run();
  const took = `${((performance.now() - startMs) / 1_000).toFixed(1)} s`;
  console.log(
    code === 0 ? `── ${name}: done in ${took}` : `── ${name}: FAILED (exit code ${code}) after ${took}`,
  );
  return code === 0;
}

/** Colours only where somebody sees them: some tools colour a file or a log as well. */
const plain = !process.stdout.isTTY && process.env.FORCE_COLOR === undefined;
export const env = plain ? { ...process.env, NO_COLOR: "1" } : process.env;

/** Runs a process in the repository with our own input and output. Resolves to its exit code. */
export function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    child = spawn(command, args, { cwd: root, stdio: "inherit", env, ...options });
    child.once("error", reject);
    child.once("close", (code, signal) => {
      child = undefined;
      // Whoever stopped us wants no further steps.
      if (stoppedBy !== undefined) {
        signalAll(stopping, "SIGKILL");
        process.exit(exitCodeOf(stoppedBy));
      }
      resolve(code ?? exitCodeOf(signal));
    });
  });
}

/** Runs a JavaScript file with this very Node. */
export function runNode(args, options = {}) {
  return run(process.execPath, args, options);
}

/** Runs the command of an installed package, as `npx` would but without its search and its questions. */
export function runTool(packageName, file, args) {
  return runNode([join(root, "node_modules", packageName, file), ...args]);
}

/** Runs npm: the one that runs us if there is one, otherwise the one on the path. */
function runNpm(args) {
  const npm = process.env.npm_execpath;
  if (npm?.endsWith(".js")) return runNode([npm, ...args]);
  const windows = process.platform === "win32";
  return run(windows ? "npm.cmd" : "npm", args, { shell: windows });
}

/** Installs the dependencies exactly as locked, when a package is missing or has another version. */
export async function install() {
  if (isInstalled()) return true;
  // The development dependencies are what tests and examples run on, also where NODE_ENV is "production".
  return step("install (npm ci)", () => runNpm(["ci", "--include=dev", "--no-audit", "--no-fund"]));
}

/** Compares contents, not times: a checkout gives the lockfile a new time. Optional packages depend on the platform. */
function isInstalled() {
  const installed = packagesIn("node_modules/.package-lock.json");
  return Object.entries(packagesIn("package-lock.json")).every(
    ([path, { version, optional, devOptional }]) =>
      path === "" || optional || devOptional || installed[path]?.version === version,
  );
}

/** The packages of a lockfile. npm writes the one below node_modules last, so a broken installation has none. */
function packagesIn(lockfile) {
  const path = join(root, lockfile);
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).packages : {};
}

/** Builds to dist/ when a source is newer than what is there. */
export async function build() {
  const dist = join(root, "dist");
  const sources = ["src", "package.json", "tsconfig.json", "tsconfig.build.json"];
  const changedMs = Math.max(...sources.map((source) => newestMs(join(root, source))));
  if (modifiedMs(join(dist, "index.js")) > changedMs) return true;
  return step("build (npm run build)", async () => {
    // What a removed or renamed source left behind must neither be tested nor be published.
    rmSync(dist, { recursive: true, force: true });
    const code = await runNpm(["run", "--silent", "build"]);
    // The compiler writes files even when it found errors; they must not pass for a build next time.
    if (code !== 0) rmSync(dist, { recursive: true, force: true });
    return code;
  });
}
