import { createLocks, LeaseLostError, memoryStore } from "holdfast";
import { faultyStore, ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";

test("closing a client does not wait for ever for a store that has fallen silent", async () => {
  const clock = new ManualClock();
  let silent = false;
  const store = faultyStore(memoryStore({ clock }), () =>
    silent ? { lose: "request", hang: true } : undefined,
  );
  const locks = createLocks(store, { clock, requestTimeoutMs: 2_000 });
  const lease = await locks.mutex("k", { ttlMs: 1_000 }).acquire();
  silent = true;
  // The lease is lost by its deadline, and what tells the store so is never answered.
  await clock.advance(1_000);
  expect(lease.held).toBe(false);
  let closed = false;
  void locks.close().then(() => {
    closed = true;
  });
  await clock.advance(2_000);
  expect(closed).toBe(true);
});

test("a signal first asked for while its client closes aborts as well", async () => {
  const clock = new ManualClock();
  const slow = faultyStore(
    memoryStore({ clock }),
    ({ verb }) => (verb === "release" ? { afterMs: 100 } : undefined),
    { clock },
  );
  const locks = createLocks(slow, { clock });
  const lease = await locks.mutex("k").acquire();
  const closing = locks.close();
  await clock.advance(50);
  const { signal } = lease;
  await clock.advance(50);
  await closing;
  expect(lease.held).toBe(false);
  expect(signal.aborted).toBe(true);
  expect(signal.reason).toBeInstanceOf(LeaseLostError);
});
