import type { Clock } from "../../platform/index.ts";
import { DEFAULT_CLOCK_DRIFT } from "../../store/index.ts";

/** Options of `casStore`, and of all stores over it. */
export interface CasStoreOptions {
  /** How many claims may wait for one key before `QUEUE_FULL`. A record is one value, so less than elsewhere. Default 1,000. */
  readonly maxWaiters?: number;
  /** How many requests may be under way at once. 1 to 64. Default 4. */
  readonly maxConcurrentRequests?: number;
  /** How many records are kept in mind, to be tried first. 1 to 10,000,000. Default 10,000. */
  readonly cachedKeys?: number;
  /**
   * How late the server may make a change after it was decided, and how long its answer is waited for, in milliseconds. 10
   * to 600,000. Default 5,000.
   */
  readonly requestTimeoutMs?: number;
  /** For how long a call is tried again while other processes keep changing the same key, in milliseconds. 1 to 600,000. Default 10,000. */
  readonly giveUpMs?: number;
  /**
   * For how long a record is kept after its last claim, in milliseconds: for its fence. It must be more than `requestTimeoutMs`, by
   * what the server's clock may ever be set back. Default 300,000.
   */
  readonly keepIdleMs?: number;
  /** Where the database cannot push: how soon to look whether somebody's turn has come, in milliseconds. 1 to 60,000. Default 20. */
  readonly minPollMs?: number;
  /** How seldom to look, at the longest: a look that finds nothing doubles the time to the next. Up to 60,000. Default 1,000. */
  readonly maxPollMs?: number;
  /**
   * By how much, as a fraction, the rates of this machine's clock and the server's may differ. Default 0.001. 0 to 0.1.
   */
  readonly clockDrift?: number;
  /** Where time comes from. Default: this machine. */
  readonly clock?: Clock;
  /** Where chance comes from, from 0 up to 1. Default `Math.random`. */
  readonly random?: () => number;
}

/** Which options there are, for stores that offer them as their own and refuse all others. */
export const casOptionNames: Readonly<Record<keyof CasStoreOptions, true>> = {
  maxWaiters: true,
  maxConcurrentRequests: true,
  cachedKeys: true,
  requestTimeoutMs: true,
  giveUpMs: true,
  keepIdleMs: true,
  minPollMs: true,
  maxPollMs: true,
  clockDrift: true,
  clock: true,
  random: true,
};

/** What holds where nothing else is asked for, of what a driver may have to go by as well. */
export const casDefaults = {
  requestTimeoutMs: 5_000,
  keepIdleMs: 300_000,
  clockDrift: DEFAULT_CLOCK_DRIFT,
} as const;
