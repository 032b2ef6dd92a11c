/**
 * Several processes share an API that allows three calls at a time. A semaphore keeps them within that, also when one of them is
 * killed in the middle of a call.
 *
 * This process is the API and keeps the locks. It kills a worker, and counts.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { memoryStore } from "holdfast";
import { startServer } from "holdfast/server";
import { pino } from "pino";

const ALLOWED = 3;
const WORKERS = 3;
const CALLS_EACH = 8;
const CALL_MS = 40;

const seen = { open: 0, most: 0, served: 0, refused: 0, cutOff: 0 };

/** Somebody else's API. */
const api = createServer(async (_request, response) => {
  if (seen.open >= ALLOWED) {
    seen.refused++;
    response.writeHead(429).end("too many at a time");
    return;
  }
  seen.open++;
  seen.most = Math.max(seen.most, seen.open);
  await sleep(CALL_MS);
  seen.open--;
  // Whoever was killed is not there to hear the answer.
  if (response.destroyed) seen.cutOff++;
  else seen.served++;
  response.end("done");
});
api.listen(0, "127.0.0.1");
await once(api, "listening");
const apiUrl = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
const server = await startServer({ store: memoryStore(), port: 0, logger: pino({ level: "warn" }) });

console.log(`${WORKERS} workers with ${CALLS_EACH} calls each. The API allows ${ALLOWED} at a time.`);
console.log("A semaphore keeps them within that.");

const workers: ChildProcess[] = [];
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    for (const worker of workers) worker.kill("SIGKILL");
    process.exit(130);
  });
}
for (let number = 1; number <= WORKERS; number++) workers.push(startWorker());
const first = workers[0] as ChildProcess;
// In the middle of its next call, give or take.
await once(first, "message");
await sleep(CALL_MS / 2);
first.kill("SIGKILL");
console.log(
  `Worker 1, process ${first.pid}, is killed. Permits that it had come back when their leases run out.`,
);
await Promise.all(workers.map((worker) => ended(worker)));
api.close();
await server.stop({ graceMs: 0 });

console.log(
  `The API had at most ${seen.most} calls open at a time, served ${seen.served} and refused ${seen.refused}.`,
);
// All calls of those who lived were made.
const made = seen.served + seen.refused >= (WORKERS - 1) * CALLS_EACH;
process.exitCode = made && seen.refused === 0 ? 0 : 1;

function startWorker(): ChildProcess {
  const program = fileURLToPath(new URL("./worker.ts", import.meta.url));
  return fork(program, [server.url, apiUrl, `${CALLS_EACH}`]);
}

async function ended(worker: ChildProcess): Promise<void> {
  if (worker.exitCode === null && worker.signalCode === null) await once(worker, "exit");
}
