/** Rule 3: how long claims live, and what a heartbeat does. */
import assert from "node:assert/strict";
import { type DefineTest, LONG, PAST_SHORT, SHORT } from "./trial.ts";

export function lifetimes(test: DefineTest): void {
  // B5, C2
  test("a held claim ends with its ttl, and the key is free again", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key, { ttlMs: trial.ms(SHORT) });
    await trial.hold(holder);
    await trial.sleep(PAST_SHORT);
    await trial.expectIdle(key);
    await trial.hold(trial.mutex(key), await trial.other());
    assert.equal(await trial.states(holder), "g");
    assert.equal(await trial.release(holder), false);
  });

  test("a waiting claim ends with its ttl, and is never granted", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const dead = await trial.queue(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    await trial.sleep(PAST_SHORT);
    assert.equal((await trial.status(key)).waitingCount, 0);
    await trial.release(holder);
    await trial.expectIdle(key);
    assert.equal(await trial.states(dead), "g");
    assert.equal(await trial.release(dead), false);
  });

  // A3
  test("a heartbeat extends a held claim", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key, { ttlMs: trial.ms(SHORT) });
    const { fence, acquiredAtMs } = await trial.hold(holder);
    const renewed = await trial.renewHeld(holder, trial.ms(LONG));
    assert.deepEqual([renewed.fence, renewed.acquiredAtMs], [fence, acquiredAtMs]);
    await trial.sleep(PAST_SHORT);
    await trial.refuse(trial.mutex(key));
    assert.equal(await trial.states(holder), "h");
  });

  test("a heartbeat extends a waiting claim", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const waiter = await trial.queue(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    assert.equal((await trial.renew(waiter, trial.ms(LONG))).state, "waiting");
    await trial.sleep(PAST_SHORT);
    await trial.release(holder);
    assert.equal(await trial.states(waiter), "h");
  });

  test("a heartbeat that names no ttl extends by the claim's own", async (trial) => {
    const request = trial.mutex(trial.key(), { ttlMs: trial.ms(SHORT * 5) });
    await trial.hold(request);
    await trial.sleep(5);
    const { expiresInMs } = await trial.renewHeld(request);
    assert.ok(
      expiresInMs > trial.ms(SHORT * 4) && expiresInMs <= request.ttlMs,
      `expiresInMs is ${expiresInMs}`,
    );
  });

  test("a heartbeat never shortens a life", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const renewed = await trial.renewHeld(holder, trial.ms(SHORT));
    assert.ok(renewed.expiresInMs > trial.ms(LONG / 2), `expiresInMs is ${renewed.expiresInMs}`);
    const asked = await trial.hold({ ...holder, ttlMs: trial.ms(SHORT) });
    assert.ok(asked.expiresInMs > trial.ms(LONG / 2), `expiresInMs is ${asked.expiresInMs}`);
    await trial.sleep(PAST_SHORT);
    await trial.refuse(trial.mutex(key));
  });

  test("being granted does not prolong a claim", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key, { ttlMs: trial.ms(LONG) });
    await trial.hold(holder);
    await trial.queue(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    await trial.sleep(SHORT / 2);
    await trial.release(holder);
    await trial.sleep(PAST_SHORT - SHORT / 2);
    await trial.expectIdle(key);
    await trial.hold(trial.mutex(key));
  });

  // "The caller's timeout judges every other holder, so a short-ttl caller evicts a long-ttl one."
  test("a caller with a short ttl does not evict a holder with a long one", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    await trial.refuse(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    await trial.queue(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    await trial.sleep(PAST_SHORT);
    await trial.refuse(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    assert.equal(await trial.states(holder), "h");
  });

  // D1
  test(
    "each holder of a semaphore expires by itself",
    async (trial) => {
      const key = trial.key();
      const brief = trial.permits(key, 2, 3, { ttlMs: trial.ms(SHORT) });
      const lasting = trial.permits(key, 1, 3);
      await trial.hold(brief);
      await trial.hold(lasting);
      await trial.sleep(PAST_SHORT);
      assert.equal((await trial.status(key)).heldWeight, 1);
      await trial.refuse(trial.permits(key, 3, 3));
      await trial.hold(trial.permits(key, 2, 3));
      assert.equal(await trial.states(brief, lasting), "gh");
    },
    { counts: true },
  );

  // "An extend and an acquire near expiry both succeed."
  test("a heartbeat and a try at the moment of expiry never both succeed", async (trial) => {
    const store = await trial.other();
    const keys = Array.from({ length: 12 }, (_, index) => trial.key(`race-${index}`));
    const holders = keys.map((key, index) =>
      // A few milliseconds apart, so that some of them expire just as they are asked about.
      trial.mutex(key, { ttlMs: Math.round(trial.ms(SHORT)) + 2 * index }),
    );
    await Promise.all(holders.map((holder) => trial.hold(holder)));
    await trial.sleep(SHORT);
    await Promise.all(
      holders.map(async (holder) => {
        const [kept, taken] = await Promise.all([
          trial.renew(holder),
          store.acquire(trial.mutex(holder.key)),
        ]);
        assert.notEqual(`${kept.state} ${taken.state}`, "held held");
        assert.ok((await trial.status(holder.key)).heldCount <= 1);
      }),
    );
  });

  test("looking does not extend a claim", async (trial) => {
    const key = trial.key();
    await trial.hold(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    await trial.sleep(SHORT / 2);
    await trial.status(key);
    await trial.sleep(PAST_SHORT - SHORT / 2);
    await trial.hold(trial.mutex(key));
  });
}
