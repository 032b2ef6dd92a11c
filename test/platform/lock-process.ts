/**
 * A process that takes a lock again and again, looks whether another process has it as well, and reports each round. With "once" it
 * keeps the lock. With "cluster" a worker of a cluster takes the lock, and the primary process reports in its place.
 */
import cluster from "node:cluster";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { takeLock } from "../../src/platform/process-lock.ts";

const [path = "", mode = "often"] = process.argv.slice(2);

if (mode === "cluster" && cluster.isPrimary) {
  const worker = cluster.fork();
  worker.on("message", (message) => process.send?.([message, worker.process.pid]));
  process.on("disconnect", () => worker.process.kill("SIGKILL"));
} else if (mode === "often") {
  while (process.connected) await round();
} else {
  const giveBack = await takeLock(path, 10_000);
  process.send?.(giveBack === undefined ? "not taken" : "taken");
  setInterval(() => {}, 1_000);
  process.on("message", () => giveBack?.());
  process.on("disconnect", () => process.exit());
}

async function round(): Promise<void> {
  const giveBack = await takeLock(path, 10_000);
  if (giveBack === undefined) return;
  const mark = `${path}-mark`;
  const former = readMark(mark);
  if (former !== "" && !(await ends(Number(former)))) process.send?.("two at once");
  writeFileSync(mark, `${process.pid}`);
  await sleep(1);
  if (readMark(mark) !== `${process.pid}`) process.send?.("two at once");
  rmSync(mark);
  giveBack();
  process.send?.("round");
}

function readMark(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** Whether a process is killed or about to be. The system closes its sockets a moment before it has ended. */
async function ends(pid: number): Promise<boolean> {
  for (let attempt = 0; attempt < 500; attempt++) {
    const state = / ([A-Z]) /.exec(readMark(`/proc/${pid}/stat`).replace(/^.*\)/, ""))?.[1];
    if (state === undefined || state === "Z" || state === "X") return true;
    await sleep(10);
  }
  return false;
}
