import { createLocks, memoryStore, type RenewAnswer, StoreUnavailableError } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";
import { storeOver } from "../../stores/store-over.ts";

// (1) When half of their life is over, each of the notes fails to be renewed by itself. (2) Nobody is told, and nobody tries again before long.
test("schedule: notes that could not be renewed are tried again soon, and that is told", async () => {
  const clock = new ManualClock();
  const backend = memoryStore({ clock });
  let attempts = 0;
  const failed = (): RenewAnswer => ({ state: "failed", error: new StoreUnavailableError("no memory left") });
  const store = storeOver(backend, {
    async renew(refs) {
      // Of the notes. Nothing else is held.
      attempts++;
      return attempts <= 3 ? refs.map(failed) : backend.renew(refs);
    },
  });
  const locks = createLocks(store, { clock, onWarning: () => {} });
  const schedule = locks.schedule("job", "0 0 1 1 *", () => {});
  for (let hours = 0; attempts === 0 && hours < 24; hours++) await clock.advance(3_600_000);
  expect(attempts).toBe(1);
  expect(schedule.status()).toMatchObject({ available: false, lastError: { code: "STORE_UNAVAILABLE" } });
  await clock.advance(10_000);
  expect(attempts).toBe(4);
  expect(schedule.status()).toMatchObject({ available: true });
  await locks.close();
});
