import { createLocks, LeaseLostError, memoryStore } from "holdfast";
import { ManualClock, settled } from "holdfast/testing";
import { expect, test } from "vitest";

test("a signal that is first asked for while the client closes has aborted already", async () => {
  const clock = new ManualClock();
  const store = memoryStore({ clock });
  const locks = createLocks(store, { clock, onWarning: () => {} });
  const lease = await locks.mutex("report").acquire();

  // The store confirms nothing, so the lease is still leaving when its signal is asked for.
  store.release = () => new Promise(() => {});
  const closing = locks.close();
  await settled();
  expect(lease.held).toBe(false);
  expect(lease.signal.aborted).toBe(true);
  expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);

  await clock.advance(10_000);
  await closing;
});
