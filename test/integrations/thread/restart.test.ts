/** A heartbeat's thread that dies, on a machine that then has no room for another one. */
import { syncBuiltinESMExports } from "node:module";
import threads from "node:worker_threads";
import { createLocks, type HoldfastWarning, memoryStore } from "holdfast";
import { heartbeatThread } from "holdfast/thread";
import { afterEach, expect, test, vi } from "vitest";

const { Worker } = threads;

function replaceWorker(replacement: typeof Worker): void {
  threads.Worker = replacement;
  syncBuiltinESMExports();
}

afterEach(() => {
  vi.useRealTimers();
  replaceWorker(Worker);
});

test("a thread that cannot be started again is a warning, and is tried again", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const warnings: HoldfastWarning[] = [];
  const told = (count: number) => vi.waitFor(() => expect(warnings).toHaveLength(count), { timeout: 20_000 });
  // It ends as soon as it has begun, because there is no such module.
  const thread = heartbeatThread({ module: new URL("./there-is-none.js", import.meta.url) });
  const locks = createLocks(memoryStore(), { thread, onWarning: (warning) => warnings.push(warning) });
  await told(1);

  // What Node does when the system refuses a thread.
  const refused = Object.assign(new Error("Worker initialization failure: EAGAIN"), {
    code: "ERR_WORKER_INIT_FAILED",
  });
  replaceWorker(
    class {
      constructor() {
        throw refused;
      }
    } as unknown as typeof Worker,
  );
  vi.advanceTimersByTime(1_000);
  expect(warnings).toHaveLength(2);
  expect(warnings[1]).toMatchObject({ code: "THREAD_FAILED", cause: { cause: refused } });

  replaceWorker(Worker);
  vi.advanceTimersByTime(2_000);
  await told(3);
  await locks.close();
});
