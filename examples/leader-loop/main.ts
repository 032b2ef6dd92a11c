/**
 * Three candidates, one leader. The first leader is killed, so the office is empty until its lease has run out. The second is told to go,
 * and the third leads at once.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";

const CANDIDATES = 3;
/** A leader's term ends in this round. */
const LAST_ROUND = 3;

const startMs = performance.now();
const folder = mkdtempSync(join(tmpdir(), "holdfast-leader-loop-"));
const candidates = new Map<string, ChildProcess>();
const fences: bigint[] = [];
let ended = 0;

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    for (const child of candidates.values()) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
    process.exit(130);
  });
}

console.log(`${CANDIDATES} candidates, one leader.\n`);
await Promise.all(Array.from({ length: CANDIDATES }, (_, index) => runCandidate(`candidate-${index + 1}`)));
rmSync(folder, { recursive: true, force: true });

const grew = fences.every((fence, index) => index === 0 || fence > (fences[index - 1] ?? fence));
console.log(grew && fences.length === CANDIDATES ? "\nOne leader at a time." : "\nThat went wrong.");
process.exitCode = grew && fences.length === CANDIDATES ? 0 : 1;

async function runCandidate(name: string): Promise<void> {
  const program = fileURLToPath(new URL("./candidate.ts", import.meta.url));
  const child = fork(program, [folder, name], { stdio: ["ignore", "pipe", "inherit", "ipc"] });
  candidates.set(name, child);
  print(name, `starts as process ${child.pid}`);
  createInterface({ input: child.stdout as Readable }).on("line", (line) => happened(name, child, line));
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  candidates.delete(name);
  print(name, signal === null ? `ends with exit code ${code}` : `is dead (${signal})`);
}

function happened(name: string, child: ChildProcess, line: string): void {
  print(name, line);
  const fence = /^leads, fence (\d+)$/.exec(line)?.[1];
  if (fence !== undefined) fences.push(BigInt(fence));
  if (!line.startsWith(`hands out round ${LAST_ROUND},`)) return;
  ended++;
  if (ended === 1)
    print("demo", `kills ${name} with SIGKILL. The office is empty until its lease has run out`);
  child.kill(ended === 1 ? "SIGKILL" : "SIGTERM");
}

function print(who: string, what: string): void {
  const time = `${((performance.now() - startMs) / 1_000).toFixed(2)} s`.padStart(8);
  console.log(`${time}  ${who.padEnd(11)}  ${what}`);
}
