/** Several locks at once, looking from the client's side, and closing a client. */
import assert from "node:assert/strict";
import { HoldfastError, LeaseLostError } from "../../store/index.ts";
import { type DefineTest, expectCode, SHORT } from "./trial.ts";

export function clientGroups(test: DefineTest): void {
  // E7
  test("a group is acquired in the order of its keys, and released together", async (trial) => {
    const locks = trial.client();
    const [a, b, c] = [trial.key("a"), trial.key("b"), trial.key("c")];
    const group = locks.all([locks.mutex(c), locks.rwLock(a).read, locks.mutex(b)]);
    assert.deepEqual(group.keys, [a, b, c]);
    const held = await group.acquire();
    assert.deepEqual(
      held.leases.map((lease) => lease.key),
      [a, b, c],
    );
    assert.equal(held.held, true);
    for (const key of [a, b, c]) assert.equal((await trial.status(key)).heldCount, 1);
    assert.ok(await locks.rwLock(a).read.tryAcquire());
    assert.equal(await held.release(), true);
    assert.equal(await held.release(), false);
    for (const key of [b, c]) await trial.expectIdle(key);
  });

  // E7. "Failure leaves minority holds", "partial holds block its own retry".
  test("a group is all or nothing: partial holds are undone", async (trial) => {
    const locks = trial.client();
    const [a, b] = [trial.key("a"), trial.key("b")];
    const blocker = await trial
      .client(await trial.other())
      .mutex(b)
      .acquire();
    const group = locks.all([locks.mutex(a), locks.mutex(b)]);
    assert.equal(await group.tryAcquire(), null);
    await trial.expectIdle(a);
    await expectCode("ACQUIRE_TIMEOUT", () =>
      trial.soon(trial.begin(group.acquire({ waitMs: trial.ms(5) }))),
    );
    await trial.expectIdle(a);
    assert.equal((await trial.status(b)).waitingCount, 0);
    assert.deepEqual(await group.tryRun(() => 1), { ran: false, reason: "contended" });
    await blocker.release();
    assert.deepEqual(await group.tryRun(() => 1), { ran: true, value: 1 });
    await trial.expectIdle(a);
    await trial.expectIdle(b);
  });

  // E7
  test("groups that overlap in opposite order do not deadlock", async (trial) => {
    const [one, two] = [trial.client(), trial.client(await trial.other())];
    const [a, b] = [trial.key("a"), trial.key("b")];
    let inside = 0;
    const body = async () => {
      assert.equal(++inside, 1);
      await Promise.resolve();
      inside--;
    };
    const work = Array.from({ length: 6 }, (_, index) =>
      index % 2 === 0
        ? one.all([one.mutex(a), one.mutex(b)]).run(body)
        : two.all([two.mutex(b), two.mutex(a)]).run(body),
    );
    await trial.soon(trial.begin(Promise.all(work)));
    await trial.expectIdle(a);
    await trial.expectIdle(b);
  });

  // D6
  test("a group with one key twice is refused as a deadlock", async (trial) => {
    const locks = trial.client();
    const { read, write } = locks.rwLock(trial.key());
    assert.throws(
      () => locks.all([read, write]),
      (error) => error instanceof HoldfastError && error.code === "DEADLOCK",
    );
  });

  // E3, E6
  test("inspect and list show who holds and who waits, to any client", async (trial) => {
    const locks = trial.client(trial.store, { application: "reports" });
    const lease = await locks.mutex(trial.key("one")).acquire({ info: "nightly" });
    await locks.mutex(trial.key("two")).acquire({ application: "other" });
    const wait = trial.begin(locks.mutex(trial.key("one")).acquire({ priority: 3, id: "waits" }));
    await trial.untilWaiting(trial.key("one"), 1);
    const admin = trial.client(await trial.other());
    const status = await admin.inspect(trial.key("one"));
    const [held, waiting] = [status.held[0], status.waiting[0]];
    assert.deepEqual(
      [held?.id, held?.info, held?.application, held?.owner, held?.fence],
      [lease.id, "nightly", "reports", locks.owner, lease.fence],
    );
    assert.deepEqual([waiting?.id, waiting?.priority], ["waits", 3]);
    const listed = new Set<string>();
    for await (const { key } of admin.list({ prefix: trial.prefix, pageSize: 1 })) listed.add(key);
    assert.deepEqual([...listed].sort(), [trial.key("one"), trial.key("two")]);
    await lease.release();
    await trial.soon(wait);
  });

  test("a forced release lets the next one in, and says false for what is not there", async (trial) => {
    const dead = trial.mutex(trial.key());
    await trial.hold(dead);
    const wait = trial.begin(trial.client().mutex(trial.key()).acquire());
    await trial.untilWaiting(trial.key(), 1);
    const admin = trial.client(await trial.other());
    assert.equal(await admin.forceRelease(trial.key(), dead.id), true);
    assert.equal((await trial.soon(wait)).held, true);
    assert.equal(await admin.forceRelease(trial.key(), dead.id), false);
  });

  test("closing a client releases its leases and ends its waits", async (trial) => {
    const locks = trial.client();
    const [mine, theirs] = [trial.key("mine"), trial.key("theirs")];
    const lease = await locks.mutex(mine, { ttlMs: trial.ms(SHORT) }).acquire();
    const { signal } = lease;
    await trial.hold(trial.mutex(theirs));
    const wait = trial.begin(locks.mutex(theirs).acquire());
    await trial.untilWaiting(theirs, 1);
    await trial.soon(locks.close());
    await locks.close();
    assert.ok(signal.aborted && signal.reason instanceof LeaseLostError);
    await expectCode("CLOSED", () => wait);
    await expectCode("CLOSED", () => locks.mutex(mine).tryAcquire());
    await trial.expectIdle(mine);
    assert.equal((await trial.status(theirs)).waitingCount, 0);
  });
}
