/** What a caller can set, each option with its meaning, unit and default, resolved once into complete settings. */
import { type Clock, systemClock } from "../platform/index.ts";
import {
  checkApplication,
  checkBoolean,
  checkChoice,
  checkDuration,
  checkFraction,
  checkId,
  checkInfo,
  checkInteger,
  checkOptionNames,
  checkPriority,
  checkToken,
  checkTtl,
  DEFAULT_CLOCK_DRIFT,
  type Durability,
  durabilities,
  HoldfastError,
  invalid,
  type Store,
} from "../store/index.ts";
import { ProcessWarnings } from "./process-warnings.ts";
import type { HeartbeatThread } from "./standby.ts";

/** Options of `createLocks`. */
export interface LocksOptions {
  /** What this program is, kept with every claim for audit. Default: empty. */
  readonly application?: string;
  /**
   * How long the store may leave a request unanswered before it counts as unavailable. Meanwhile the request is sent
   * again, with the same claim id. Default 5,000.
   */
  readonly requestTimeoutMs?: number;
  /**
   * By how much, as a fraction, the rates of this machine's clock and the store's may differ. A lease is counted as
   * lost this much earlier. Default 0.001, which is twice what a clock is ever slewed by. 0 to 0.1.
   */
  readonly clockDrift?: number;
  /** Whether `close` also closes the store. Set it to false when several clients share one. Default true. */
  readonly closeStore?: boolean;
  /**
   * Told what needs attention but fails no call. Default: a process warning for each of the first five of a kind, then one every 10 s
   * with the number of the others.
   */
  readonly onWarning?: (warning: HoldfastWarning) => void;
  /**
   * What stands for a key in events, if not the key itself: `false` withholds it, a function makes a label of it, and does nothing
   * else. Errors and warnings, whose messages name keys, are then left out of events. Default: the key.
   */
  readonly eventKey?: KeyLabel;
  /** Where time comes from. Default: this machine. */
  readonly clock?: Clock;
  /**
   * A second heartbeat, in a thread of its own, that keeps leases alive while the event loop is blocked: `heartbeatThread` of
   * `holdfast/thread`. Default: none, so that a lease is lost when the event loop is blocked for too long.
   */
  readonly thread?: HeartbeatThread;
}

/** What is told of keys: nothing at all, or what a function makes of each. */
export type KeyLabel = false | ((key: string) => string);

/** Something that needs attention but fails no call. */
export interface HoldfastWarning {
  readonly code:
    | "UNRELEASED_LEASE"
    | "RELEASE_FAILED"
    | "SKIPPED_UNAVAILABLE"
    | "RUN_FAILED"
    | "RUN_UNRECORDED"
    | "TICKS_MISSED"
    | "SCHEDULE_FORGOTTEN"
    | "THREAD_FAILED"
    | "CLOCKS_DIFFER";
  readonly message: string;
  /** Empty where it is about no key in particular. */
  readonly key: string;
  readonly cause?: unknown;
}

/** Options of a lock, the same for everybody who acquires it. */
export interface LockOptions {
  /** How long a claim lives after each heartbeat, so how long a crash blocks others. 10 to 86,400,000. Default 30,000. */
  readonly ttlMs?: number;
  /** Whether leases renew themselves. `false` takes a lease of fixed length. Default true. */
  readonly renew?: boolean;
  /** How often leases renew themselves. 1 to half of `ttlMs`, so that a renewal that fails can be repeated. Default a third of it. */
  readonly renewEveryMs?: number;
  /** Whether the process stays alive while a lease is held. Default false: only while a call waits, or a body runs. */
  readonly keepProcessAlive?: boolean;
  /** The least durability that the store must have. Default: whatever the store has. */
  readonly durability?: Durability;
  /**
   * Whether a lost lease is won again in place, with a new id and fence told through `watch`, instead of aborting its
   * signal. The body must then ask `held` itself. Default false.
   */
  readonly reacquire?: boolean;
  /** The longest that one lease may be held in all, renewals included; then it is lost. Default: no end. */
  readonly maxHoldMs?: number;
  /**
   * Whether a call that comes from a body which holds the key shares its claim: one claim in the store, one fence, given back with the
   * last of their leases. Both locks need the option. Without it such a call is refused with `DEADLOCK`. Default false.
   */
  readonly reentrant?: boolean;
  /**
   * What a try does when the store is unavailable: `"throw"` a StoreUnavailableError, or `"skip"`, which reports "not
   * acquired", warns and counts it: nobody runs rather than everybody. Default "throw".
   */
  readonly onUnavailable?: "throw" | "skip";
}

/** Options of one try. */
export interface TryOptions {
  /** Cancels the call, which then rejects with the signal's reason and leaves no claim behind. */
  readonly signal?: AbortSignal;
  /** Higher goes first. 0 to 65,535. Default 0. */
  readonly priority?: number;
  /**
   * The claim's id. Asking again with the same id, also from another process, is the same claim. Default: made up.
   * One id stands for one attempt: two programs that use the same id at the same time are not kept apart.
   */
  readonly id?: string;
  /**
   * The claim's secret, which renewing and releasing it takes. Asking again with the same id and the same token gets the
   * lease as it is, with another token it takes the lease over. Up to 128 bytes. Default: made up.
   */
  readonly token?: string;
  /** For people: why this is being asked for. Up to 1,024 bytes. Default: empty. */
  readonly info?: string;
  /** Overrides the client's `application` for this claim. */
  readonly application?: string;
}

/** Options of one acquire. */
export interface AcquireOptions extends TryOptions {
  /**
   * How long to wait in the queue; 0 does not queue. Then it throws AcquireTimeoutError. Default: without end; over HTTP the lock server's
   * default is an hour.
   */
  readonly waitMs?: number;
  /** Called when the claim has to wait in the queue of this key. Default: nobody is told. */
  readonly onWaiting?: (key: string) => void;
  /**
   * Whether cancelling leaves the claim in the queue, or held if it just was granted, until its ttl is over. Somebody who then
   * asks with the same id and token goes on in its place. A function is asked when the signal aborts. Default false: the claim is
   * taken back.
   */
  readonly detachOnAbort?: boolean | (() => boolean);
}

/** How many permits of a semaphore one call takes. */
export interface PermitOptions {
  /** 1 up to the semaphore's limit. Default 1. */
  readonly permits?: number;
}

/** The resolved options of a client. */
export interface ClientSettings {
  readonly application: string;
  readonly requestTimeoutMs: number;
  readonly clockDrift: number;
  readonly closeStore: boolean;
  readonly onWarning: (warning: HoldfastWarning) => void;
  readonly eventKey: false | ((key: string) => string | undefined) | undefined;
  readonly clock: Clock;
  readonly thread: HeartbeatThread | undefined;
}

/** The resolved options of a lock. */
export interface LockSettings {
  readonly ttlMs: number;
  readonly renew: boolean;
  readonly renewEveryMs: number;
  readonly keepProcessAlive: boolean;
  readonly reacquire: boolean;
  readonly maxHoldMs: number;
  readonly reentrant: boolean;
  readonly onUnavailable: "throw" | "skip";
}

export const locksOptionNames: Readonly<Record<keyof LocksOptions, true>> = {
  application: true,
  requestTimeoutMs: true,
  clockDrift: true,
  closeStore: true,
  onWarning: true,
  eventKey: true,
  clock: true,
  thread: true,
};

const lockOptionNames: Readonly<Record<keyof LockOptions, true>> = {
  ttlMs: true,
  renew: true,
  renewEveryMs: true,
  keepProcessAlive: true,
  durability: true,
  reacquire: true,
  maxHoldMs: true,
  reentrant: true,
  onUnavailable: true,
};

const tryOptionNames: Readonly<Record<keyof (TryOptions & PermitOptions), true>> = {
  signal: true,
  priority: true,
  id: true,
  token: true,
  info: true,
  application: true,
  permits: true,
};

const acquireOptionNames: Readonly<Record<keyof (AcquireOptions & PermitOptions), true>> = {
  waitMs: true,
  ...tryOptionNames,
  onWaiting: true,
  detachOnAbort: true,
};

// Defaults stand for what is absent, never for what is null or otherwise wrong: that is told.

export function resolveLocksOptions(options: LocksOptions): ClientSettings {
  checkOptionNames("createLocks", options, locksOptionNames);
  const {
    application = "",
    requestTimeoutMs = 5_000,
    clockDrift = DEFAULT_CLOCK_DRIFT,
    closeStore = true,
  } = options;
  const clock = options.clock ?? systemClock;
  return {
    application: checkApplication(application),
    requestTimeoutMs: checkTtl(requestTimeoutMs, "requestTimeoutMs"),
    clockDrift: checkFraction("clockDrift", clockDrift, 0.1),
    closeStore: checkBoolean("closeStore", closeStore),
    onWarning:
      options.onWarning === undefined ? processWarnings(clock) : guarded("onWarning", options.onWarning),
    eventKey: options.eventKey === undefined ? undefined : checkKeyLabel("eventKey", options.eventKey),
    clock,
    thread: checkThread(options.thread),
  };
}

/** `known` is what another lock came to. Where this one comes to the same, it shares that, and need not be checked again. */
export function resolveLockOptions(
  options: LockOptions,
  key: string,
  store: Store,
  known?: LockSettings,
): LockSettings {
  checkOptionNames("a lock", options, lockOptionNames);
  const { ttlMs = 30_000, renew = true, reacquire = false, onUnavailable = "throw" } = options;
  const { durability, maxHoldMs = Number.POSITIVE_INFINITY, reentrant = false } = options;
  const { renewEveryMs = ttlMs / 3, keepProcessAlive = false } = options;
  if (durability !== undefined) checkDurability(durability, key, store);
  if (
    known !== undefined &&
    ttlMs === known.ttlMs &&
    renew === known.renew &&
    renewEveryMs === known.renewEveryMs &&
    keepProcessAlive === known.keepProcessAlive &&
    reacquire === known.reacquire &&
    maxHoldMs === known.maxHoldMs &&
    reentrant === known.reentrant &&
    onUnavailable === known.onUnavailable
  ) {
    return known;
  }
  return {
    ttlMs: checkTtl(ttlMs),
    renew: checkBoolean("renew", renew),
    renewEveryMs:
      options.renewEveryMs === undefined ? renewEveryMs : checkRenewEvery(renewEveryMs, ttlMs, renew),
    keepProcessAlive: checkBoolean("keepProcessAlive", keepProcessAlive),
    reacquire: checkBoolean("reacquire", reacquire),
    maxHoldMs: checkDuration("maxHoldMs", maxHoldMs),
    reentrant: checkBoolean("reentrant", reentrant),
    onUnavailable: checkChoice("onUnavailable", onUnavailable, ["throw", "skip"]),
  };
}

/** Checks what one try asks for. The values themselves are read where they are used. */
export function checkTryOptions(options: TryOptions & PermitOptions): void {
  checkValues(Object(options));
  checkOptionNames("tryAcquire and tryRun", options, tryOptionNames);
}

/** Checks what one acquire asks for. */
export function checkAcquireOptions(options: AcquireOptions & PermitOptions): void {
  checkValues(Object(options));
  checkOptionNames("acquire and run", options, acquireOptionNames);
}

function checkValues(options: AcquireOptions): void {
  if (options.waitMs !== undefined) checkDuration("waitMs", options.waitMs);
  if (options.priority !== undefined) checkPriority(options.priority);
  if (options.id !== undefined) checkId(options.id);
  if (options.token !== undefined) checkToken(options.token);
  if (options.info !== undefined) checkInfo(options.info);
  if (options.application !== undefined) checkApplication(options.application);
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
    throw invalid("signal must be an AbortSignal; pass controller.signal, not the controller.");
  }
  if (options.onWaiting !== undefined && typeof options.onWaiting !== "function") {
    throw invalid(`onWaiting must be a function, not ${options.onWaiting}.`);
  }
  if (options.detachOnAbort !== undefined && typeof options.detachOnAbort !== "function") {
    checkBoolean("detachOnAbort", options.detachOnAbort);
  }
}

/** Whether the application has cancelled, and leaves the claim where it is. */
export function leavesClaim({ signal, detachOnAbort = false }: AcquireOptions): boolean {
  if (signal?.aborted !== true) return false;
  return typeof detachOnAbort === "function" ? detachOnAbort() : detachOnAbort;
}

function checkThread(thread: HeartbeatThread | undefined): HeartbeatThread | undefined {
  if (thread === undefined || typeof thread?.start === "function") return thread;
  throw invalid("thread must be the result of heartbeatThread, from holdfast/thread.");
}

function checkRenewEvery(renewEveryMs: number, ttlMs: number, renew: boolean): number {
  if (!renew)
    throw invalid("renewEveryMs is for leases that renew themselves. Remove it, or remove renew: false.");
  return checkInteger("renewEveryMs", renewEveryMs, 1, Math.floor(ttlMs / 2));
}

function checkDurability(floor: Durability, key: string, store: Store): void {
  checkChoice("durability", floor, durabilities);
  if (durabilities.indexOf(store.durability) >= durabilities.indexOf(floor)) return;
  throw new HoldfastError(
    "DURABILITY_UNAVAILABLE",
    `"${key}" demands durability "${floor}", and the ${store.name} store offers "${store.durability}". ` +
      "Use a more durable store, or lower the lock's durability option.",
    { key },
  );
}

/** What a function makes of a key is text, or nothing where it fails: that is uncaught, and never in a lock's way. */
export function checkKeyLabel(name: string, label: KeyLabel): false | ((key: string) => string | undefined) {
  return label === false ? false : guarded(name, label, "false or a function");
}

/** A callback fails no call: what it throws is uncaught, as from a listener, and never in the way. */
function guarded<A, R>(
  name: string,
  callback: (value: A) => R,
  kind = "a function",
): (value: A) => R | undefined {
  if (typeof callback !== "function") throw invalid(`${name} must be ${kind}, not ${callback}.`);
  return (value) => {
    try {
      return callback(value);
    } catch (error) {
      process.nextTick(() => {
        throw error;
      });
      return undefined;
    }
  };
}

function processWarnings(clock: Clock): (warning: HoldfastWarning) => void {
  const warnings = new ProcessWarnings(clock);
  return (warning) => warnings.emit(warning);
}
