/**
 * A process that locks and writes until it is killed. It appends to a log: `grant` with the key, the fence and the end of the lease on the
 * clock that all processes share, `end` before it releases the lease, and `freed` when the release is confirmed.
 *
 * It is compiled before it runs, and so imports no package by a name that only the tests know.
 */
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "../../../src/index.ts";
import { fileStore } from "../../../src/stores/file/index.ts";

const [folder = "", log = "", ttl = "", pace = "", ...keys] = process.argv.slice(2);
const ttlMs = Number(ttl);
process.send?.("opening");
const locks = createLocks(fileStore(folder), { onWarning: () => {} });

const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6;

async function takeTurns(key: string): Promise<void> {
  for (;;) {
    try {
      const lease = await locks.mutex(key, { ttlMs }).acquire({ waitMs: 20_000 });
      const untilMs = monotonicMs() + lease.expiresAtMs - Date.now();
      if (!lease.held) continue;
      appendFileSync(log, `grant ${key} ${lease.fence} ${monotonicMs()} ${untilMs} ${process.pid}\n`);
      // About as long as it takes to get the lock, so that a kill often finds it held.
      await sleep(Math.random() * 60);
      if (lease.held) appendFileSync(log, `end ${key} ${lease.fence}\n`);
      if (await lease.release()) appendFileSync(log, `freed ${key} ${lease.fence}\n`);
      // So a kill often comes right after a release.
      if (pace === "quiet") await sleep(Math.random() * 150);
    } catch {
      await sleep(10);
    }
  }
}

/** Keeps the disk busy, so that a kill often comes in the middle of a transaction. */
async function makeNoise(): Promise<void> {
  for (;;) {
    const name = `noise:${Math.floor(Math.random() * 50)}`;
    const lease = await locks
      .mutex(name, { ttlMs })
      .tryAcquire({ info: "x".repeat(Math.random() * 1_000) })
      .catch(() => null);
    if (lease === null) await sleep(5);
    else await lease.release().catch(() => false);
  }
}

/** Tells its parent when its first lock was there. On a busy machine that may take a while. */
async function becomeReady(): Promise<void> {
  try {
    await locks.mutex(`ready:${process.pid}`).run(() => process.send?.("ready"));
  } catch {
    await sleep(10);
    await becomeReady();
  }
}

for (const key of keys) void takeTurns(key);
if (pace === "busy") for (let each = 0; each < 4; each++) void makeNoise();
await becomeReady();
