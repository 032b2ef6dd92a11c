/** Finds the processes that a process has started, and those that they have. Empty where the system does not tell. */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

export function descendantsOf(pid) {
  const children = new Map();
  for (const [child, parent] of listProcesses())
    children.set(parent, [...(children.get(parent) ?? []), child]);
  const found = [];
  for (let next = [pid]; next.length > 0; ) {
    next = next.flatMap((parent) => children.get(parent) ?? []);
    found.push(...next);
  }
  return found;
}

/** Signals processes, also those that have ended meanwhile. */
export function signalAll(pids, signal) {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch {
      // It has ended by itself.
    }
  }
}

/** Every process of this machine and the one that started it. */
function listProcesses() {
  if (process.platform === "win32") return [];
  if (process.platform === "linux") return listProc();
  const table = execFileSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" });
  return table
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/).map(Number));
}

/** Small images come without `ps`, but Linux tells the same as files. */
function listProc() {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        // The name of the program stands in brackets and may contain anything, so what counts comes after the last one.
        const [, parent] = readFileSync(`/proc/${name}/stat`, "utf8")
          .replace(/^.*\) /s, "")
          .split(" ");
        return [[Number(name), Number(parent)]];
      } catch {
        return [];
      }
    });
}
