/** Rule 1: what may be held together. */
import assert from "node:assert/strict";
import { type DefineTest, expectGrowing } from "./trial.ts";

export function granting(test: DefineTest): void {
  // A1, B1
  test("a free key is held at once, with a fence", async (trial) => {
    const request = trial.mutex(trial.key());
    const answer = await trial.hold(request);
    assert.equal(typeof answer.fence, "bigint");
    assert.ok(answer.fence > 0n);
    assert.ok(answer.acquiredAtMs > 0);
    assert.ok(answer.expiresInMs > 0 && answer.expiresInMs <= request.ttlMs);
  });

  test("a mutex is held by one at a time", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    await trial.refuse(trial.mutex(key), "contended", await trial.other());
    assert.equal(await trial.release(holder), true);
    await trial.hold(trial.mutex(key), await trial.other());
  });

  // D5
  test("readers share a key, and shut a writer out", async (trial) => {
    const key = trial.key();
    const readers = [trial.reader(key), trial.reader(key), trial.reader(key)];
    for (const reader of readers) await trial.hold(reader);
    await trial.refuse(trial.mutex(key));
    for (const reader of readers) await trial.release(reader);
    await trial.hold(trial.mutex(key));
  });

  test("a writer shuts readers and writers out", async (trial) => {
    const key = trial.key();
    const writer = trial.mutex(key);
    await trial.hold(writer);
    await trial.refuse(trial.reader(key));
    await trial.refuse(trial.mutex(key));
    await trial.release(writer);
    await trial.hold(trial.reader(key));
  });

  // D1
  test(
    "a semaphore admits its limit's worth of weight",
    async (trial) => {
      const key = trial.key();
      const two = trial.permits(key, 2, 4);
      await trial.hold(two);
      await trial.hold(trial.permits(key, 1, 4));
      await trial.refuse(trial.permits(key, 2, 4));
      await trial.hold(trial.permits(key, 1, 4));
      await trial.refuse(trial.permits(key, 1, 4));
      assert.equal((await trial.status(key)).heldWeight, 4);
      await trial.release(two);
      await trial.hold(trial.permits(key, 2, 4));
    },
    { counts: true },
  );

  test(
    "a heavy claim waits until enough weight is free",
    async (trial) => {
      const key = trial.key();
      const two = trial.permits(key, 2, 4);
      const one = trial.permits(key, 1, 4);
      await trial.hold(two);
      await trial.hold(one);
      const heavy = await trial.queue(trial.permits(key, 3, 4));
      await trial.release(one);
      assert.equal(await trial.states(heavy), "w");
      await trial.release(two);
      assert.equal(await trial.states(heavy), "h");
    },
    { counts: true },
  );

  test(
    "the tightest limit among the holders and the newcomer counts",
    async (trial) => {
      const key = trial.key();
      const tight = trial.permits(key, 1, 2);
      await trial.hold(trial.permits(key, 1, 3));
      await trial.hold(tight);
      await trial.refuse(trial.permits(key, 1, 3));
      await trial.release(tight);
      await trial.hold(trial.permits(key, 1, 3));
      await trial.refuse(trial.permits(key, 1, 2));
    },
    { counts: true },
  );

  test(
    "a reader joins a semaphore only within its limit",
    async (trial) => {
      const key = trial.key();
      const permit = trial.permits(key, 1, 2);
      await trial.hold(permit);
      await trial.hold(trial.reader(key));
      await trial.refuse(trial.reader(key));
      await trial.release(permit);
      await trial.hold(trial.reader(key));
    },
    { counts: true },
  );

  test("of many who try at once, exactly one gets a mutex", async (trial) => {
    const key = trial.key();
    const stores = [trial.store, await trial.other()];
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) => (stores[index % 2] ?? trial.store).acquire(trial.mutex(key))),
    );
    assert.equal(answers.filter((answer) => answer.state === "held").length, 1);
    assert.equal((await trial.status(key)).heldCount, 1);
  });

  // "The same instance acquired three times counts once", and a limit that a race exceeds.
  test(
    "of many who try at once, exactly a semaphore's limit get in, each with a fence of its own",
    async (trial) => {
      const key = trial.key();
      const stores = [trial.store, await trial.other()];
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, index) =>
          (stores[index % 2] ?? trial.store).acquire(trial.permits(key, 1, 3, { owner: "one process" })),
        ),
      );
      const fences = answers.flatMap((answer) => (answer.state === "held" ? [answer.fence] : []));
      assert.equal(fences.length, 3);
      expectGrowing(fences.sort((a, b) => (a < b ? -1 : 1)));
    },
    { counts: true },
  );
}
