/**
 * Three replicas of a service have one nightly job, and a night takes three seconds here. In the second night whoever runs the job is
 * killed in the middle. Another replica takes over, with a higher fence.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";

const REPLICAS = 3;
const NIGHTS = 3;
const EVERY_THREE_SECONDS = "*/3 * * * * *";

const startMs = performance.now();
const folder = mkdtempSync(join(tmpdir(), "holdfast-nightly-job-"));
const replicas = new Map<string, ChildProcess>();
const written: string[] = [];
let begun = 0;
let killed: string | undefined;

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    for (const child of replicas.values()) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
    process.exit(130);
  });
}

console.log(`${REPLICAS} replicas, one job a night. Each night it runs on one of them.\n`);
await Promise.all(Array.from({ length: REPLICAS }, (_, index) => runReplica(`replica-${index + 1}`)));
rmSync(folder, { recursive: true, force: true });

const complete = new Set(written).size === written.length && written.length >= NIGHTS && killed !== undefined;
console.log(complete ? "\nEvery report was written once." : "\nThat went wrong.");
process.exitCode = complete ? 0 : 1;

async function runReplica(name: string): Promise<void> {
  const program = fileURLToPath(new URL("./replica.ts", import.meta.url));
  const child = fork(program, [folder, EVERY_THREE_SECONDS], { stdio: ["ignore", "pipe", "inherit", "ipc"] });
  replicas.set(name, child);
  print(name, `starts as process ${child.pid}`);
  createInterface({ input: child.stdout as Readable }).on("line", (line) => happened(name, child, line));
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  replicas.delete(name);
  print(name, signal === null ? `ends with exit code ${code}` : `is dead (${signal})`);
}

function happened(name: string, child: ChildProcess, line: string): void {
  print(name, line);
  const report = /^has written the report of (.*)$/.exec(line)?.[1];
  if (report !== undefined) written.push(report);
  if (line.startsWith("begins") && ++begun === 2) {
    killed = name;
    child.kill("SIGKILL");
    print("demo", `kills ${name} with SIGKILL, in the middle of the job`);
  }
  if (report !== undefined && written.length === NIGHTS) {
    for (const other of replicas.values()) other.kill("SIGTERM");
  }
}

function print(who: string, what: string): void {
  const time = `${((performance.now() - startMs) / 1_000).toFixed(2)} s`.padStart(8);
  console.log(`${time}  ${who.padEnd(9)}  ${what}`);
}
