/** What the compiler lets through and what it does not. `tsc` checks this file; nothing in it has to run. */
import type { Lease, LeaseGroup, Lock, Locks, LossReason, Semaphore, TryRunResult } from "holdfast";
import { describe, expectTypeOf, test } from "vitest";

/** Written for the compiler and never called. */
function unused(
  ..._: readonly ((locks: Locks, lock: Lock, semaphore: Semaphore, lease: Lease) => unknown)[]
) {}

describe("types", () => {
  test("contention is a value that callers cannot overlook", () => {
    expectTypeOf<ReturnType<Lock["tryAcquire"]>>().toEqualTypeOf<Promise<Lease | null>>();
    expectTypeOf<ReturnType<Lock["acquire"]>>().toEqualTypeOf<Promise<Lease>>();
    unused(
      // @ts-expect-error It may be null.
      async (_, lock) => (await lock.tryAcquire()).release(),
      // @ts-expect-error There is no value unless it ran.
      async (_, lock) => (await lock.tryRun(() => 1)).value,
    );
  });

  test("run and tryRun pass on what the body returns, awaited", () => {
    unused(
      (_, lock) => expectTypeOf(lock.run(() => 1)).toEqualTypeOf<Promise<number>>(),
      (_, lock) => expectTypeOf(lock.run(async () => "a")).toEqualTypeOf<Promise<string>>(),
      (_, lock) => expectTypeOf(lock.tryRun(async () => 1)).toEqualTypeOf<Promise<TryRunResult<number>>>(),
      (locks) =>
        locks.all([locks.mutex("a")]).run((group) => expectTypeOf(group).toEqualTypeOf<LeaseGroup>()),
    );
  });

  test("only a semaphore takes permits, and only a wait takes waitMs", () => {
    unused(
      (_, __, semaphore) => semaphore.acquire({ permits: 2, waitMs: 5 }),
      // @ts-expect-error A mutex has one.
      (_, lock) => lock.acquire({ permits: 2 }),
      // @ts-expect-error A try does not wait.
      (_, lock) => lock.tryAcquire({ waitMs: 5 }),
      // @ts-expect-error A group takes one permit of each.
      (locks, lock) => locks.all([lock]).acquire({ permits: 2 }),
    );
  });

  test("options are spelt as documented", () => {
    unused(
      (locks) => locks.mutex("k", { durability: "quorum", onUnavailable: "skip" }),
      // @ts-expect-error No such durability.
      (locks) => locks.mutex("k", { durability: "solid" }),
      // @ts-expect-error No such choice.
      (locks) => locks.mutex("k", { onUnavailable: "ignore" }),
      // @ts-expect-error Numbers carry their unit, and so do options.
      (locks) => locks.mutex("k", { ttl: 5 }),
      // @ts-expect-error Milliseconds are a number.
      (locks) => locks.mutex("k", { ttlMs: "30s" }),
      // @ts-expect-error A semaphore has a limit.
      (locks) => locks.semaphore("k"),
      // @ts-expect-error A reader-writer lock is acquired by one of its sides.
      (locks) => locks.rwLock("k").acquire(),
    );
  });

  test("a lease is read, not written, and can leave a scope", () => {
    expectTypeOf<Lease>().toExtend<AsyncDisposable>();
    expectTypeOf<LeaseGroup>().toExtend<AsyncDisposable>();
    expectTypeOf<Locks>().toExtend<AsyncDisposable>();
    expectTypeOf<Lease["fence"]>().toEqualTypeOf<bigint>();
    expectTypeOf<Lease["state"]["lost"]>().toEqualTypeOf<LossReason | undefined>();
    unused((_, __, ___, lease) => {
      // @ts-expect-error The store gives fences.
      lease.fence = 1n;
    });
  });
});
