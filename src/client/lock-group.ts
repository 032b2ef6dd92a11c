import { joinSignals } from "../platform/index.ts";
import { AcquireTimeoutError, HoldfastError, invalid } from "../store/index.ts";
import type { Heartbeat } from "./heartbeat.ts";
import type { Lease, ReleaseOptions } from "./lease.ts";
import {
  KeyLock,
  type Lock,
  type Lockable,
  runAndRelease,
  type Semaphore,
  type TryRunResult,
} from "./lock.ts";
import { type AcquireOptions, checkAcquireOptions, leavesClaim, type TryOptions } from "./options.ts";

/** Several locks as one: all of them or none. */
export interface LockGroup extends Lockable<LeaseGroup, TryOptions, AcquireOptions> {
  /** In the order in which they are acquired. */
  readonly keys: readonly string[];
}

/** Several leases that are held together and given back together. */
export class LeaseGroup implements AsyncDisposable {
  /** In the order in which they were acquired. */
  readonly leases: readonly Lease[];
  #signal: AbortSignal | undefined;

  /** @internal */
  constructor(leases: readonly Lease[]) {
    this.leases = leases;
  }

  /** Whether all of them are proven at this moment. */
  get held(): boolean {
    return this.leases.every((lease) => lease.held);
  }

  /** Aborts with the first LeaseLostError among them. */
  get signal(): AbortSignal {
    this.#signal ??= AbortSignal.any(this.leases.map((lease) => lease.signal));
    return this.#signal;
  }

  /** The lease on one of the keys. Throws `INVALID_ARGUMENT` for a key that is not in the group. */
  lease(key: string): Lease {
    const lease = this.leases.find((candidate) => candidate.key === key);
    if (lease === undefined) throw invalid(`"${key}" is not a key of this group.`, key);
    return lease;
  }

  /** Throws what the first of them that is not held throws. */
  assertHeld(): void {
    for (const lease of this.leases) lease.assertHeld();
  }

  /** Gives them all back, the last one first. Whether all were still held; safe to call twice. */
  async release(options?: ReleaseOptions): Promise<boolean> {
    const released = await Promise.allSettled(
      this.leases.toReversed().map((lease) => lease.release(options)),
    );
    const failed = released.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
    return released.every((result) => result.status === "fulfilled" && result.value);
  }

  /** Releases. A failure is a warning and not an error, so that it cannot hide one of the body's. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.leases.toReversed().map((lease) => lease[Symbol.asyncDispose]()));
  }
}

/**
 * Groups locks. Whoever takes several takes them in the order of their keys' bytes in UTF-8, in every language, so no two
 * can wait for each other.
 */
export function createLockGroup(heartbeat: Heartbeat, locks: readonly (Lock | Semaphore)[]): LockGroup {
  const sorted = locks.map(asKeyLock).sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
  if (sorted.length === 0) throw invalid("all needs at least one lock in its list.");
  for (const [index, lock] of sorted.entries()) {
    if (sorted[index + 1]?.key === lock.key) {
      throw new HoldfastError(
        "DEADLOCK",
        `"${lock.key}" is in the group twice and would wait for itself. Name each key once.`,
        {
          key: lock.key,
        },
      );
    }
  }

  async function tryAll(options: TryOptions): Promise<LeaseGroup | "contended" | "unavailable"> {
    const leases: Lease[] = [];
    try {
      for (const lock of sorted) {
        const lease = await lock.attempt(options);
        if (typeof lease === "string") {
          await new LeaseGroup(leases)[Symbol.asyncDispose]();
          return lease;
        }
        leases.push(lease);
      }
      return whole(leases);
    } catch (error) {
      await new LeaseGroup(leases)[Symbol.asyncDispose]();
      throw error;
    }
  }

  async function acquireAll(options: AcquireOptions): Promise<LeaseGroup> {
    checkAcquireOptions(options);
    const { waitMs = Number.POSITIVE_INFINITY } = options;
    const untilMs = heartbeat.clock.monotonicMs() + waitMs;
    const leases: Lease[] = [];
    try {
      for (const lock of sorted) {
        const leftMs = waitMs === 0 ? 0 : Math.ceil(untilMs - heartbeat.clock.monotonicMs());
        if (leftMs < 0) throw new AcquireTimeoutError(lock.key, waitMs);
        leases.push(await acquireNext(lock, leases, { ...options, waitMs: leftMs }));
      }
      return whole(leases);
    } catch (error) {
      if (leavesClaim(options)) for (const lease of leases) lease.detach();
      else await new LeaseGroup(leases)[Symbol.asyncDispose]();
      throw error instanceof AcquireTimeoutError ? new AcquireTimeoutError(error.key ?? "", waitMs) : error;
    }
  }

  return {
    keys: sorted.map((lock) => lock.key),
    async tryAcquire(options = {}) {
      const group = await tryAll(options);
      return typeof group === "string" ? null : group;
    },
    async acquire(options = {}) {
      return acquireAll(options);
    },
    async tryRun<T>(body: (group: LeaseGroup) => T | PromiseLike<T>, options: TryOptions = {}) {
      const group = await tryAll(options);
      if (typeof group === "string") return { ran: false, reason: group } satisfies TryRunResult<T>;
      return {
        ran: true,
        value: await runAndRelease(heartbeat, group.leases, group, body),
      } satisfies TryRunResult<T>;
    },
    async run(body, options = {}) {
      const group = await acquireAll(options);
      return runAndRelease(heartbeat, group.leases, group, body);
    },
  };
}

/** Waits for the next lock, but not longer than those already held last. */
async function acquireNext(lock: KeyLock, leases: readonly Lease[], options: AcquireOptions): Promise<Lease> {
  const signals = leases.map((lease) => lease.signal);
  if (options.signal !== undefined) signals.push(options.signal);
  const { signal, part } = joinSignals(signals);
  try {
    // With a lost lease among those already held, the next one is of no use to a caller who comes back.
    return await lock.acquire({ ...options, signal, detachOnAbort: () => leavesClaim(options) });
  } finally {
    part();
  }
}

/** All of them are held now, not merely one after the other. */
function whole(leases: readonly Lease[]): LeaseGroup {
  const group = new LeaseGroup(leases);
  group.assertHeld();
  return group;
}

function asKeyLock(lock: Lock | Semaphore): KeyLock {
  if (!(lock instanceof KeyLock)) {
    throw invalid("all accepts only locks of mutex, semaphore and rwLock (its read or write side).");
  }
  // It would wait for its key out of order, while the later ones are held: for somebody who waits for one of those.
  if (lock.reacquires)
    throw invalid(
      `all does not accept "${lock.key}", because its lock has reacquire: true. Pass a lock without it.`,
      lock.key,
    );
  return lock;
}
