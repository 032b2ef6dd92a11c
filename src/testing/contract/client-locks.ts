/** The locks that applications use: mutexes, reader-writer locks, semaphores. */
import assert from "node:assert/strict";
import type { Lease } from "../../client/index.ts";
import { durabilities, HoldfastError } from "../../store/index.ts";
import { type DefineTest, expectCode, expectGrowing } from "./trial.ts";

export function clientLocks(test: DefineTest): void {
  // B1, C3, A4
  test("tryAcquire takes a free lock, and says null when another client has it", async (trial) => {
    const mine = trial.client().mutex(trial.key());
    const theirs = trial.client(await trial.other()).mutex(trial.key());
    const lease = await mine.tryAcquire();
    assert.ok(lease?.held);
    assert.equal(lease.key, trial.key());
    assert.equal(await theirs.tryAcquire(), null);
    assert.equal(await mine.tryAcquire(), null);
    assert.equal(await lease.release(), true);
    assert.ok((await theirs.tryAcquire())?.held);
  });

  // B2
  test("run hands out a held lease, releases it, and resolves to what the body returns", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    let seen: Lease | undefined;
    const value = await lock.run(async (lease) => {
      seen = lease;
      assert.equal(lease.held, true);
      assert.equal((await trial.status(trial.key())).heldCount, 1);
      return 42;
    });
    assert.equal(value, 42);
    assert.equal(seen?.held, false);
    await trial.expectIdle(trial.key());
  });

  // B2
  test("run and tryRun release when the body throws, and pass its error on", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const failure = new Error("the body's own");
    const body = async () => {
      throw failure;
    };
    assert.equal(await reasonOf(lock.run(body)), failure);
    await trial.expectIdle(trial.key());
    assert.equal(await reasonOf(lock.tryRun(body)), failure);
    await trial.expectIdle(trial.key());
  });

  // B2
  test("tryRun says whether the body ran, and skips it under contention", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const rival = trial.client(await trial.other()).mutex(trial.key());
    let ran = 0;
    const outcome = await lock.tryRun(async () => {
      ran++;
      assert.deepEqual(await rival.tryRun(() => ran++), { ran: false, reason: "contended" });
      return "done";
    });
    assert.deepEqual(outcome, { ran: true, value: "done" });
    assert.equal(ran, 1);
  });

  // B3
  test("releasing twice is safe, and only the first says that it held", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const lease = await lock.acquire();
    assert.equal(await lease.release(), true);
    const next = await lock.acquire();
    assert.equal(await lease.release(), false);
    assert.equal(next.held, true);
    assert.equal((await lock.inspect()).heldCount, 1);
    await expectCode("NOT_HELD", async () => lease.assertHeld());
  });

  // D5
  test("a reader-writer lock is shared by readers and exclusive to a writer", async (trial) => {
    const mine = trial.client().rwLock(trial.key());
    const theirs = trial.client(await trial.other()).rwLock(trial.key());
    const readers = [await mine.read.acquire(), await theirs.read.acquire()];
    assert.equal(await mine.write.tryAcquire(), null);
    for (const lease of readers) await lease.release();
    const writer = await theirs.write.acquire();
    assert.equal(await mine.read.tryAcquire(), null);
    assert.equal(await mine.write.tryAcquire(), null);
    await writer.release();
    assert.ok(await mine.read.tryAcquire());
  });

  // D1. "The same instance acquired three times counts once."
  test(
    "a semaphore acquired three times by one client takes three permits",
    async (trial) => {
      const semaphore = trial.client().semaphore(trial.key(), 3);
      const leases = [await semaphore.acquire(), await semaphore.acquire(), await semaphore.acquire()];
      expectGrowing(leases.map((lease) => lease.fence));
      assert.equal(await semaphore.tryAcquire(), null);
      assert.equal(
        await trial
          .client(await trial.other())
          .semaphore(trial.key(), 3)
          .tryAcquire(),
        null,
      );
      await leases[1]?.release();
      assert.ok(await semaphore.tryAcquire());
    },
    { counts: true },
  );

  test(
    "a lease on several permits takes them all, or waits for them all",
    async (trial) => {
      const semaphore = trial.client().semaphore(trial.key(), 4);
      const three = await semaphore.acquire({ permits: 3 });
      assert.equal(await semaphore.tryAcquire({ permits: 2 }), null);
      const one = await semaphore.acquire({ permits: 1 });
      const two = trial.begin(semaphore.acquire({ permits: 2 }));
      await trial.untilWaiting(trial.key(), 1);
      await one.release();
      assert.equal((await semaphore.inspect()).waitingCount, 1);
      await three.release();
      assert.equal((await trial.soon(two)).held, true);
      assert.equal((await semaphore.inspect()).heldWeight, 2);
      await expectCode("INVALID_ARGUMENT", () => semaphore.tryAcquire({ permits: 5 }));
    },
    { counts: true },
  );

  test("a semaphore is refused where the store does not count, and only there", async (trial) => {
    const locks = trial.client();
    let refused: unknown;
    try {
      locks.semaphore(trial.key(), 2);
    } catch (error) {
      refused = error;
    }
    if (trial.store.counts) assert.equal(refused, undefined);
    else assert.ok(refused instanceof HoldfastError && refused.code === "UNSUPPORTED");
    // A semaphore of one is a mutex, which every store can be.
    assert.ok(await locks.semaphore(trial.key(), 1).tryAcquire());
  });

  // E5
  test("a lock that demands more durability than the store has is refused", async (trial) => {
    const locks = trial.client();
    const rank = durabilities.indexOf(trial.store.durability);
    for (const [index, durability] of durabilities.entries()) {
      const demand = async () => locks.mutex(trial.key(), { durability });
      if (index <= rank) await demand();
      else await expectCode("DURABILITY_UNAVAILABLE", demand);
    }
  });

  // A1
  test("nobody is in the critical section with another, and fences follow its order", async (trial) => {
    const clients = [trial.client(), trial.client(await trial.other())];
    const fences: bigint[] = [];
    let inside = 0;
    const work = Array.from({ length: 16 }, (_, index) =>
      clients[index % 2]?.mutex(trial.key()).run(async (lease) => {
        assert.equal(++inside, 1);
        fences.push(lease.fence);
        await Promise.resolve();
        inside--;
      }),
    );
    await trial.soon(trial.begin(Promise.all(work)));
    assert.equal(fences.length, 16);
    expectGrowing(fences);
    await trial.expectIdle(trial.key());
  });
}

async function reasonOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => assert.fail("it was to reject"),
    (reason: unknown) => reason,
  );
}
