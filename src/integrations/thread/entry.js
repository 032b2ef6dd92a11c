/**
 * Where the heartbeat's thread begins. It is JavaScript, because Node starts a thread from a file as it is.
 *
 * Whatever goes wrong here ends the thread, and the application's thread is told why.
 */
import { parentPort, workerData } from "node:worker_threads";
import { toMs } from "./cell.ts";
import { sharedClock } from "./shared-time.ts";
import { Standby } from "./standby.ts";
import { openSource } from "./store-source.ts";

const port = /** @type {import("node:worker_threads").MessagePort} */ (parentPort);
const data = /** @type {import("./protocol.ts").ThreadData} */ (workerData);
const life = new BigInt64Array(data.life);

const store = await openSource(data.source);
const standby = new Standby({
  store,
  clock: sharedClock,
  clockDrift: data.clockDrift,
  requestTimeoutMs: data.requestTimeoutMs,
  maxBlockedMs: data.maxBlockedMs,
  lifeMs: () => toMs(Atomics.load(life, 0)),
  tell: (news) => port.postMessage(news),
});

port.on("message", (/** @type {import("./protocol.ts").Order} */ order) => {
  if (order === "close") {
    void close();
    return;
  }
  for (const kept of order.keep) standby.keep(kept);
  for (const number of order.drop) standby.drop(number);
});

async function close() {
  standby.close();
  try {
    await store.close();
  } finally {
    // Ends this thread alone, also when a client that a module opened is still connected.
    process.exit(0);
  }
}
