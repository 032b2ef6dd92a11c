/** Waiting for a lock: order, timeouts, cancellation, repeated requests. */
import assert from "node:assert/strict";
import { AcquireTimeoutError } from "../../store/index.ts";
import { faultyStore } from "../faulty-store.ts";
import { type DefineTest, expectCode, LONG, SHORT } from "./trial.ts";

export function clientWaiting(test: DefineTest): void {
  test("waiting clients are served in order, as soon as the one before releases", async (trial) => {
    const clients = [trial.client(), trial.client(await trial.other())];
    const options = { ttlMs: trial.ms(LONG) };
    const served: number[] = [];
    const holder = await trial.client().mutex(trial.key(), options).acquire();
    const waits: Promise<void>[] = [];
    for (let index = 0; index < 4; index++) {
      const lock = clients[index % 2]?.mutex(trial.key(), options);
      waits.push(trial.begin(lock?.run(() => void served.push(index)) ?? Promise.reject()));
      await trial.untilWaiting(trial.key(), index + 1);
    }
    await holder.release();
    await trial.soon(Promise.all(waits));
    assert.deepEqual(served, [0, 1, 2, 3]);
  });

  // E2
  test("a wait of higher priority is served first", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const holder = await lock.acquire();
    const served: string[] = [];
    const low = trial.begin(lock.run(() => void served.push("low")));
    await trial.untilWaiting(trial.key(), 1);
    const high = trial.begin(lock.run(() => void served.push("high"), { priority: 5 }));
    await trial.untilWaiting(trial.key(), 2);
    await holder.release();
    await trial.soon(Promise.all([low, high]));
    assert.deepEqual(served, ["high", "low"]);
  });

  // D2. "acquire(timeout) makes one attempt."
  test("a lock that comes free within waitMs is acquired", async (trial) => {
    const holder = await trial.client().mutex(trial.key()).acquire();
    const wait = trial.begin(
      trial
        .client(await trial.other())
        .mutex(trial.key())
        .acquire({ waitMs: trial.ms(LONG) }),
    );
    await trial.untilWaiting(trial.key(), 1);
    await trial.sleep(3);
    await holder.release();
    const lease = await trial.soon(wait);
    assert.ok(lease.held && lease.fence > holder.fence);
  });

  // D2, D6, E1
  test("a wait that runs out is an AcquireTimeoutError, and leaves no claim", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const holder = await lock.acquire();
    const wait = trial.begin(lock.acquire({ waitMs: trial.ms(5) }));
    const error = await expectCode("ACQUIRE_TIMEOUT", () => trial.soon(wait));
    assert.ok(error instanceof AcquireTimeoutError);
    assert.equal((await lock.inspect()).waitingCount, 0);
    await holder.release();
    await trial.expectIdle(trial.key());
  });

  // E1. "attempts: 0 returns true without asking the store."
  test("a wait of 0 is a try that asks the store", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const lease = await lock.acquire({ waitMs: 0 });
    assert.deepEqual(
      (await lock.inspect()).held.map(({ id }) => id),
      [lease.id],
    );
    await expectCode("ACQUIRE_TIMEOUT", () => lock.acquire({ waitMs: 0 }));
    assert.equal((await lock.inspect()).waitingCount, 0);
  });

  // D6. "Resigning while waiting still elects later."
  test("a cancelled wait rejects with the signal's reason, and is not granted later", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const holder = await lock.acquire();
    const controller = new AbortController();
    const wait = trial.begin(lock.acquire({ signal: controller.signal }));
    await trial.untilWaiting(trial.key(), 1);
    const reason = new Error("changed my mind");
    controller.abort(reason);
    const rejection = await trial.soon(wait.catch((error: unknown) => error));
    assert.equal(rejection, reason);
    assert.equal((await lock.inspect()).waitingCount, 0);
    await holder.release();
    await trial.sleep(2);
    await trial.expectIdle(trial.key());
  });

  test("a cancelled call never asks", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const reason = new Error("not today");
    const rejection = await lock
      .tryAcquire({ signal: AbortSignal.abort(reason) })
      .catch((error: unknown) => error);
    assert.equal(rejection, reason);
    await trial.expectIdle(trial.key());
  });

  // "A user's abort makes release throw, so the lock lingers."
  test("a signal that aborts while the body runs does not keep the lock from being released", async (trial) => {
    const lock = trial.client().mutex(trial.key());
    const controller = new AbortController();
    const value = await lock.run(
      async (lease) => {
        controller.abort(new Error("the user left"));
        assert.equal(lease.held, true);
        return "finished";
      },
      { signal: controller.signal },
    );
    assert.equal(value, "finished");
    await trial.expectIdle(trial.key());
  });

  test("a waiting client outlives its ttl, because it keeps telling that it waits", async (trial) => {
    const options = { ttlMs: trial.ms(SHORT * 2) };
    const holder = await trial
      .client()
      .mutex(trial.key(), { ttlMs: trial.ms(LONG) })
      .acquire();
    const wait = trial.begin(
      trial
        .client(await trial.other())
        .mutex(trial.key(), options)
        .acquire(),
    );
    await trial.untilWaiting(trial.key(), 1);
    await trial.sleep(SHORT * 3);
    assert.equal((await trial.status(trial.key())).waitingCount, 1);
    await holder.release();
    assert.equal((await trial.soon(wait)).held, true);
  });

  test("a waiting client is served when the holder has died", async (trial) => {
    const dead = trial.mutex(trial.key(), { ttlMs: trial.ms(SHORT) });
    const { fence } = await trial.hold(dead);
    const lease = await trial.soon(trial.begin(trial.client().mutex(trial.key()).acquire()));
    assert.ok(lease.held && lease.fence > fence);
  });

  test("a waiting client is served without any push, only later", async (trial) => {
    const deaf = faultyStore(trial.store, ({ verb }) => (verb === "push" ? { lose: "request" } : undefined));
    const holder = await trial.client().mutex(trial.key()).acquire();
    const wait = trial.begin(
      trial
        .client(deaf)
        .mutex(trial.key(), { ttlMs: trial.ms(SHORT) })
        .acquire(),
    );
    await trial.untilWaiting(trial.key(), 1);
    await holder.release();
    assert.equal((await trial.soon(wait)).held, true);
  });

  // E4, E10. "Partial holds block its own retry."
  test("a request repeated after a lost reply is the same claim", async (trial) => {
    const store = faultyStore(trial.store, ({ verb, count }) =>
      verb === "acquire" && count === 1 ? { lose: "reply" } : undefined,
    );
    const lease = await trial.soon(trial.begin(trial.client(store).mutex(trial.key()).acquire()));
    const status = await trial.status(trial.key());
    assert.deepEqual(
      status.held.map(({ id, fence }) => [id, fence]),
      [[lease.id, lease.fence]],
    );
    assert.equal(await lease.release(), true);
    await trial.expectIdle(trial.key());
  });

  // E4, E10
  test("a caller that restarts with the same id gets its claim back, and the former one loses it", async (trial) => {
    const options = { ttlMs: trial.ms(SHORT * 3) };
    const former = await trial.client().mutex(trial.key(), options).acquire({ id: "job-7" });
    const restarted = trial.client(await trial.other()).mutex(trial.key(), options);
    const latter = await restarted.acquire({ id: "job-7", waitMs: 0 });
    assert.ok(latter.fence > former.fence);
    await trial.eventually("the former lease is lost", () => former.signal.aborted);
    assert.equal(await former.release(), false);
    assert.equal(latter.held, true);
  });

  test(
    "a full queue is its own error",
    async (trial) => {
      const lock = trial.client().mutex(trial.key());
      await lock.acquire();
      void trial.begin(lock.acquire());
      await trial.untilWaiting(trial.key(), 1);
      await expectCode("QUEUE_FULL", () => trial.soon(trial.begin(lock.acquire())));
      assert.equal(await lock.tryAcquire(), null);
    },
    { maxWaiters: 1 },
  );
}
