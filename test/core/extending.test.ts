import { createLocks, memoryStore } from "holdfast";
import { faultyStore, ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";

test("an extension that came to nothing leaves a lease without renewal as it was", async () => {
  const clock = new ManualClock();
  let silent = false;
  const store = faultyStore(memoryStore({ clock }), () =>
    silent ? { lose: "request", hang: true } : undefined,
  );
  const locks = createLocks(store, { clock, requestTimeoutMs: 1_000 });
  const lease = await locks.mutex("k", { ttlMs: 10_000, renew: false }).acquire();
  const expiresAtMs = lease.expiresAtMs;
  silent = true;
  const extending = lease.extend(60_000);
  extending.catch(() => {});
  await clock.advance(1_500);
  await expect(extending).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  silent = false;
  await clock.advance(5_000);
  expect(lease.expiresAtMs).toBe(expiresAtMs);
  await clock.advance(5_000);
  expect(lease.held).toBe(false);
});
