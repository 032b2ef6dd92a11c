/** Rule 2: in which order claims are granted, and what a try may do. */
import assert from "node:assert/strict";
import { type DefineTest, PAST_SHORT, SHORT } from "./trial.ts";

export function queueing(test: DefineTest): void {
  test("waiting claims are served in order of arrival", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const first = await trial.queue(trial.mutex(key));
    const second = await trial.queue(trial.mutex(key), await trial.other());
    const third = await trial.queue(trial.mutex(key));
    await trial.release(holder);
    assert.equal(await trial.states(first, second, third), "hww");
    await trial.release(first);
    assert.equal(await trial.states(first, second, third), "ghw");
    await trial.release(second);
    assert.equal(await trial.states(first, second, third), "ggh");
  });

  // E2
  test("higher priority goes first, and arrival decides among equals", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const low = await trial.queue(trial.mutex(key));
    const high = await trial.queue(trial.mutex(key, { priority: 10 }));
    const highest = await trial.queue(trial.mutex(key, { priority: 65_535 }));
    const highLate = await trial.queue(trial.mutex(key, { priority: 10 }));
    const order = (await trial.status(key)).waiting.map((claim) => claim.id);
    assert.deepEqual(
      order,
      [highest, high, highLate, low].map((claim) => claim.id),
    );
    for (const [leaving, next] of [
      [holder, highest],
      [highest, high],
      [high, highLate],
      [highLate, low],
    ] as const) {
      await trial.release(leaving);
      assert.equal(await trial.states(next), "h");
    }
  });

  test("a late reader does not overtake a waiting writer", async (trial) => {
    const key = trial.key();
    const reader = trial.reader(key);
    await trial.hold(reader);
    const writer = await trial.queue(trial.mutex(key));
    await trial.refuse(trial.reader(key));
    const late = await trial.queue(trial.reader(key));
    assert.equal(await trial.states(writer, late), "ww");
    await trial.release(reader);
    assert.equal(await trial.states(writer, late), "hw");
    await trial.release(writer);
    assert.equal(await trial.states(late), "h");
  });

  test(
    "a light claim does not overtake the heavy head of the queue",
    async (trial) => {
      const key = trial.key();
      const holder = trial.permits(key, 2, 3);
      await trial.hold(holder);
      const heavy = await trial.queue(trial.permits(key, 3, 3));
      await trial.refuse(trial.permits(key, 1, 3));
      const light = await trial.queue(trial.permits(key, 1, 3));
      assert.equal(await trial.states(heavy, light), "ww");
      await trial.release(holder);
      assert.equal(await trial.states(heavy, light), "hw");
    },
    { counts: true },
  );

  test("readers next to each other in the queue are granted together", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const readers = [await trial.queue(trial.reader(key)), await trial.queue(trial.reader(key))];
    const writer = await trial.queue(trial.mutex(key));
    const behind = await trial.queue(trial.reader(key));
    await trial.release(holder);
    assert.equal(await trial.states(...readers, writer, behind), "hhww");
  });

  test("whoever leaves the queue makes way for those behind", async (trial) => {
    const key = trial.key();
    await trial.hold(trial.reader(key));
    const writer = await trial.queue(trial.mutex(key));
    const reader = await trial.queue(trial.reader(key));
    assert.equal(await trial.release(writer), true);
    assert.equal(await trial.states(writer, reader), "gh");
  });

  test("a try that fails leaves nothing behind", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const tried = trial.mutex(key);
    await trial.refuse(tried);
    assert.equal((await trial.status(key)).waitingCount, 0);
    assert.equal(await trial.states(tried), "g");
    await trial.release(holder);
    await trial.expectIdle(key);
  });

  test("a try of higher priority goes ahead of the queue where it fits at once", async (trial) => {
    const key = trial.key();
    await trial.hold(trial.reader(key));
    const writer = await trial.queue(trial.mutex(key));
    await trial.hold(trial.reader(key, { priority: 1 }));
    await trial.refuse(trial.mutex(key, { priority: 1 }));
    assert.equal(await trial.states(writer), "w");
  });

  test("a waiting claim that asks again without waiting leaves the queue", async (trial) => {
    const key = trial.key();
    await trial.hold(trial.reader(key));
    const writer = await trial.queue(trial.mutex(key));
    const reader = await trial.queue(trial.reader(key));
    await trial.refuse({ ...writer, wait: false });
    assert.equal(await trial.states(writer, reader), "gh");
  });

  test(
    "a full queue refuses another waiter, and nobody else",
    async (trial) => {
      const key = trial.key();
      const holder = trial.mutex(key);
      await trial.hold(holder);
      const first = await trial.queue(trial.mutex(key));
      const second = await trial.queue(trial.mutex(key));
      const third = trial.mutex(key, { wait: true });
      await trial.refuse(third, "queue-full");
      assert.equal((await trial.status(key)).waitingCount, 2);
      await trial.refuse(trial.mutex(key), "contended");
      await trial.wait(first);
      await trial.release(holder);
      assert.equal(await trial.states(first, second, third), "hwg");
      await trial.wait(third);
    },
    { maxWaiters: 2 },
  );

  // "Fair-lock waiters that died cost 5 s each."
  test("waiters that died cost those behind them nothing", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    for (let count = 0; count < 3; count++) await trial.queue(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    const alive = await trial.queue(trial.mutex(key));
    await trial.sleep(PAST_SHORT);
    await trial.release(holder);
    assert.equal(await trial.states(alive), "h");
  });

  test("the head of the queue is told when to ask again, and is then granted what a dead holder left", async (trial) => {
    const key = trial.key();
    await trial.hold(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    const head = trial.mutex(key);
    const { retryInMs, expiresInMs } = await trial.wait(head);
    // More than the ttl, where a store knows its own time only within bounds: those of two slow round trips.
    assert.ok(retryInMs >= 0 && retryInMs <= trial.ms(2 * SHORT), `retryInMs is ${retryInMs}`);
    assert.ok(expiresInMs > 0 && expiresInMs <= head.ttlMs, `expiresInMs is ${expiresInMs}`);
    // A tick more: stores may round.
    await trial.sleep(retryInMs / trial.ms(1) + 1);
    assert.equal(await trial.states(head), "h");
  });
}
