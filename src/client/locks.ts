import type { Schedule, ScheduleBody } from "../coordination/index.ts";
import {
  CronSchedule,
  checkScheduleName,
  type Election,
  type ElectionOptions,
  LockElection,
  type Once,
  type OnceOptions,
  type ScheduleOptions,
  WindowedOnce,
} from "../coordination/index.ts";
import {
  bounds,
  checkChoice,
  checkDuration,
  checkId,
  checkInteger,
  checkKey,
  checkOptionNames,
  checkPrefix,
  checkStore,
  checkTtl,
  HoldfastError,
  invalid,
  type KeyStatus,
  type Store,
  UNLIMITED,
} from "../store/index.ts";
import { outsideBodies } from "./body.ts";
import { closedError } from "./claim-errors.ts";
import { Heartbeat } from "./heartbeat.ts";
import {
  DEFAULT_SHOWN_CLAIMS,
  KeyLock,
  type Lock,
  lookAtKey,
  type RwLock,
  type Semaphore,
  shown,
} from "./lock.ts";
import { createLockGroup, type LockGroup } from "./lock-group.ts";
import { type LockOptions, type LocksOptions, resolveLockOptions, resolveLocksOptions } from "./options.ts";
import { type LocksStats, snapshotOf } from "./stats.ts";

export interface ListOptions {
  /** Only keys that begin with this. Default: all. */
  readonly prefix?: string;
  /** How many keys are fetched at a time. 1 to 1,000. Default 100. */
  readonly pageSize?: number;
  /** How many claims are shown of each key's holders and waiters. Default 100. */
  readonly maxClaims?: number;
}

export interface CloseOptions {
  /**
   * How long to wait for open leases and waits to end by themselves. What is then still open is cut off: waits reject
   * with `CLOSED`, leases are lost and released. `Infinity` waits for all. Default 0.
   */
  readonly graceMs?: number;
}

/** A client: makes locks over one store and keeps their leases alive. */
export interface Locks extends AsyncDisposable {
  readonly store: Store;
  /** Who this client is in the store's records. */
  readonly owner: string;
  /** Held by one at a time. */
  mutex(key: string, options?: LockOptions): Lock;
  /** Held by many readers or one writer. First come, first served, so neither side starves. */
  rwLock(key: string, options?: LockOptions): RwLock;
  /** Held by up to `limit` permits' worth at a time. Everybody should name the same limit; the tightest one counts. */
  semaphore(key: string, limit: number, options?: LockOptions): Semaphore;
  /** Several locks as one, taken in the order of their keys: free of deadlock, all or nothing. Not with `reacquire`. */
  all(locks: readonly (Lock | Semaphore)[]): LockGroup;
  /** Runs a body at most once in a window of time, over all clients. */
  once(key: string, options: OnceOptions): Once;
  /**
   * Runs a body at the ticks of a cron pattern: each of them on one of all clients that have a schedule of this name. It begins
   * at once. docs/schedules.md tells what holds when clocks differ, replicas die and the store is away.
   */
  schedule(name: string, cron: string, body: ScheduleBody, options?: ScheduleOptions): Schedule;
  /** Elects one leader among all clients that campaign for this name. It is the holder of the mutex of that key. */
  election(name: string, options?: ElectionOptions): Election;
  /** Who holds a key and who waits for it. */
  inspect(key: string, options?: { readonly maxClaims?: number }): Promise<KeyStatus>;
  /** The keys that are held or waited for. */
  list(options?: ListOptions): AsyncGenerator<KeyStatus, void, void>;
  /** Ends somebody's claim, waiting or held. They learn of it at their next heartbeat; fencing protects until then. */
  forceRelease(key: string, id: string): Promise<boolean>;
  /** What this client has done and has open. */
  stats(): Readonly<LocksStats>;
  /** Ends this client. Nothing can be acquired from now on. Called again, it can only hurry the first call up. */
  close(options?: CloseOptions): Promise<void>;
}

/**
 * Makes a client over a store. Cheap: one heartbeat loop and one subscription, however many locks.
 *
 * @example
 * const locks = createLocks(memoryStore());
 * await locks.mutex("nightly-report").run(async (lease) => { … });
 */
export function createLocks(store: Store, options: LocksOptions = {}): Locks {
  const heartbeat = new Heartbeat(checkStore(store), resolveLocksOptions(options));

  /** Locks made one after the other mostly have the same settings. Leases keep them, so a million should share them. */
  let settings = resolveLockOptions({}, "", store);

  function lock(key: string, limit: number, lockOptions: LockOptions): KeyLock {
    settings = resolveLockOptions(lockOptions, key, store, settings);
    return new KeyLock(heartbeat, checkKey(key), limit, settings);
  }

  /** The schedules and campaigns of this client, by name: each of them is one replica's. */
  const scheduled = new Set<string>();
  const campaigning = new Set<string>();

  function schedule(
    name: string,
    cron: string,
    body: ScheduleBody,
    scheduleOptions: ScheduleOptions,
  ): Schedule {
    assertOpen(checkScheduleName(name));
    if (typeof body !== "function") throw invalid("body must be a function.");
    if (scheduled.has(name)) {
      throw invalid(
        `This client already has a schedule "${name}". Stop that schedule first, or choose another name.`,
      );
    }
    const forget = () => scheduled.delete(name);
    // Its runs go on after the body that it may be made in.
    const made = outsideBodies(() => new CronSchedule(heartbeat, name, cron, body, scheduleOptions, forget));
    if (!made.status().stopped) scheduled.add(name);
    return made;
  }

  function once(key: string, onceOptions: Partial<OnceOptions>): Once {
    checkOptionNames("once", onceOptions, {
      windowMs: true,
      onError: true,
      onUnavailable: true,
      durability: true,
    });
    const { windowMs = Number.NaN, onError = "keep", onUnavailable, durability } = onceOptions;
    checkTtl(windowMs, "windowMs");
    checkChoice("onError", onError, ["keep", "free"]);
    const lockOptions = {
      ttlMs: windowMs,
      renew: false,
      ...(onUnavailable === undefined ? {} : { onUnavailable }),
      ...(durability === undefined ? {} : { durability }),
    };
    return new WindowedOnce(heartbeat, lock(key, 1, lockOptions), onError);
  }

  function assertOpen(key?: string): void {
    if (heartbeat.closing) throw closedError(key);
  }

  async function* list(listOptions: ListOptions = {}): AsyncGenerator<KeyStatus, void, void> {
    checkOptionNames("list", listOptions, { prefix: true, pageSize: true, maxClaims: true });
    const prefix = checkPrefix(listOptions.prefix ?? "");
    const limit = checkInteger("pageSize", listOptions.pageSize ?? 100, 1, bounds.maxPageKeys);
    const maxClaims = checkShownClaims(listOptions.maxClaims);
    let cursor: string | undefined;
    do {
      assertOpen();
      const query = { prefix, limit, maxClaims, ...(cursor === undefined ? {} : { cursor }) };
      const page = await heartbeat.answer(() => store.look(query), prefix);
      for (const status of page.keys) yield shown(status);
      cursor = page.cursor;
    } while (cursor !== undefined);
  }

  return {
    store,
    owner: heartbeat.owner,
    mutex: (key, lockOptions = {}) => lock(key, 1, lockOptions),
    rwLock: (key, lockOptions = {}) => ({
      key,
      read: lock(key, UNLIMITED, lockOptions),
      write: lock(key, 1, lockOptions),
    }),
    semaphore(key, limit, lockOptions = {}) {
      checkInteger("limit", limit, 1, bounds.maxPermits);
      if (!store.counts && limit > 1) throw cannotCount(store, key);
      return lock(key, limit, lockOptions);
    },
    all: (locks) => createLockGroup(heartbeat, locks),
    once: (key, onceOptions = {} as OnceOptions) => once(key, onceOptions),
    schedule: (name, cron, body, scheduleOptions = {}) => schedule(name, cron, body, scheduleOptions),
    election: (name, electionOptions = {}) =>
      new LockElection(heartbeat, checkKey(name), electionOptions, campaigning),
    async inspect(key, inspectOptions = {}) {
      checkOptionNames("inspect", inspectOptions, { maxClaims: true });
      return shown(await lookAtKey(heartbeat, checkKey(key), checkShownClaims(inspectOptions.maxClaims)));
    },
    list,
    async forceRelease(key, id) {
      assertOpen(key);
      const refs = [{ key: checkKey(key), id: checkId(id) }];
      const [released] = await heartbeat.answer(() => store.release(refs), key);
      heartbeat.report.forceReleased(key, id, released === true);
      return released === true;
    },
    stats: () => snapshotOf(heartbeat.stats),
    async close(closeOptions = {}) {
      checkOptionNames("close", closeOptions, { graceMs: true });
      await heartbeat.close(checkDuration("graceMs", closeOptions.graceMs ?? 0));
    },
    async [Symbol.asyncDispose]() {
      await this.close();
    },
  };
}

function checkShownClaims(maxClaims = DEFAULT_SHOWN_CLAIMS): number {
  return checkInteger("maxClaims", maxClaims, 0, bounds.maxShownClaims);
}

function cannotCount(store: Store, key: string): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `The ${store.name} store does not count permits, so "${key}" cannot be a semaphore there. ` +
      "A majority of servers bounds one holder but not several: use a mutex, a reader-writer lock or another store.",
    { key },
  );
}
