/**
 * A process whose body blocks its event loop, from the built package and without a loader. `blocked-process.test.ts` says how, and
 * reads what it tells. It tells it at once, though its event loop stands still.
 */
import { writeSync } from "node:fs";
import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import { createLocks, memoryStore } from "holdfast";
import { heartbeatThread } from "holdfast/thread";
import { openStore } from "./process-source.js";

/**
 * @typedef {object} Scenario
 * @property {string} url Where the locks are; "memory:" for the memory of this process.
 * @property {string} [threadUrl] Of the second heartbeat; by default there is none.
 * @property {boolean} [byModule] Whether the second heartbeat gets its store from a module.
 * @property {boolean} [atOnce] Whether it blocks in the very turn in which it is granted a second lease.
 * @property {boolean} [dies] Whether its thread dies, once.
 * @property {number} [maxBlockedMs]
 * @property {number} [maxHoldMs]
 * @property {number} ttlMs
 * @property {number} blockMs
 * @property {boolean} [busy] Whether it computes all the while, instead of waiting for nothing.
 * @property {"release" | "leave" | "close" | "loop"} end What it does with its lease at last. It leaves and closes after a warning.
 */

const scenario = /** @type {Scenario} */ (JSON.parse(process.argv[2] ?? ""));
const { url, threadUrl, ttlMs, maxHoldMs } = scenario;
const deaths = new SharedArrayBuffer(8);
let warnings = 0;

/** Whether the thread has renewed a lease. On a busy machine it takes longer than a ttl to start and to connect. */
let threadWorks = false;
process.on("worker", (worker) => {
  worker.on("message", (news) => {
    if (news.type === "proven") threadWorks = true;
  });
  // To listen makes it keep the process alive.
  worker.unref();
});

const store = url === "memory:" ? memoryStore() : await openStore({ url });
const locks = createLocks(store, {
  onWarning({ code, message }) {
    warnings++;
    tell({ event: "warning", code, message });
  },
  ...(threadUrl === undefined ? {} : { thread: heartbeatThread(source(threadUrl)) }),
});
if (scenario.atOnce === true) await untilThreadWorks();
const lease = await locks
  .mutex("blocked", { ttlMs, ...(maxHoldMs === undefined ? {} : { maxHoldMs }) })
  .acquire();
lease.signal.addEventListener("abort", () => tell({ event: "aborted" }));
tell({ event: "held", fence: `${lease.fence}` });
while (scenario.atOnce !== true && threadUrl !== undefined && url !== "memory:" && !threadWorks)
  await sleep(10);
if (scenario.dies === true) await untilRevived();
// What is due when the event loop turns again: the loss has to be told before.
setTimeout(() => tell({ event: "turned" }), 1);
block(scenario.blockMs);
tell({ event: "unblocked", held: lease.held, lost: lease.state.lost, fence: `${lease.fence}` });
await turn();
await sleep(10);
while (scenario.end !== "release" && warnings === 0) await sleep(10);
switch (scenario.end) {
  case "release":
    tell({ event: "releasing", held: lease.held, atNs: `${process.hrtime.bigint()}` });
    tell({ event: "released", held: await lease.release() });
    await locks.close();
    break;
  case "close":
    await locks.close();
    tell({ event: "closed" });
    await sleep(60_000);
    break;
  case "leave":
    // Nothing else to do, so the process ends by itself.
    tell({ event: "leaving" });
}

/** Until the thread has renewed a first lease, on another key. */
async function untilThreadWorks() {
  const first = await locks.mutex("first", { ttlMs }).acquire();
  while (!threadWorks) await sleep(10);
  await first.release();
}

/** @param {string} threadUrl */
function source(threadUrl) {
  const maxBlockedMs = scenario.maxBlockedMs ?? 60_000;
  if (scenario.byModule !== true) return { url: threadUrl, maxBlockedMs };
  const module = new URL("./process-source.js", import.meta.url);
  const data = scenario.dies === true ? { url: threadUrl, deaths } : { url: threadUrl };
  return { module, data, maxBlockedMs };
}

/** Until the thread has died, was started again, and has renewed the lease. The lease is held all the while. */
async function untilRevived() {
  const words = new Int32Array(deaths);
  while (Atomics.load(words, 1) === 0) {
    lease.assertHeld();
    await sleep(10);
  }
  tell({ event: "revived", starts: Atomics.load(words, 0) });
}

/** @param {number} blockMs */
function block(blockMs) {
  const nothing = new Int32Array(new SharedArrayBuffer(4));
  const endMs = performance.now() + blockMs;
  let wasHeld = true;
  let heldAtNs = 0n;
  while (performance.now() < endMs || scenario.end === "loop") {
    if (scenario.busy === true) for (let pause = performance.now() + 2; performance.now() < pause; );
    else Atomics.wait(nothing, 0, 0, 2);
    const nowNs = process.hrtime.bigint();
    const isHeld = lease.held;
    if (isHeld) heldAtNs = nowNs;
    else if (wasHeld) tell({ event: "lost", reason: lease.state.lost, heldAtNs: `${heldAtNs}` });
    wasHeld = isHeld;
  }
}

/** @param {Record<string, unknown>} event */
function tell(event) {
  writeSync(1, `${JSON.stringify(event)}\n`);
}
