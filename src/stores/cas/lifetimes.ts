/**
 * Databases without a clock, such as etcd: their driver decides when claims end. Then `nowMs`, `keepUntilMs` and the window of
 * a batch mean nothing to other processes, and each process uses its own clock.
 */
import type { LockRecord } from "../../record/index.ts";
import type { Answer, Asked } from "./combine.ts";
import type { AssumedLeases } from "./driver.ts";
import type { TimeSource } from "./server-time.ts";

/** The parts of `casStore` that a driver calls. */
export interface LifetimesHost {
  /** Drops what has ended from the record of a key. */
  settle(key: string): Promise<unknown>;
  /** Looks again at the keys that claims of this process wait for, if the cached record may concern them. A hint. */
  lookAgain(mayConcern: (record: LockRecord | undefined) => boolean): void;
}

export interface Lifetimes {
  /** The time of this process, and the stamp for its fences. */
  readonly time: TimeSource;
  /** Called once, before anything else. */
  start(host: LifetimesHost): void;
  /** Resolves when claims of this ttl can be made; undefined if they can be already. Rejects with `INVALID_ARGUMENT` if never. */
  ready(ttlMs: number): Promise<void> | undefined;
  /** Sets when the claims of a record end. Called before operations are applied to it. */
  begin(key: string, record: LockRecord, nowMs: number): ChangeLifetimes;
  /** The database has this record. */
  confirm(key: string, record: LockRecord): void;
  /** Shortens an answer, decided at `sentMs`, to the time for which the claim is proven to live. */
  proven(answer: Answer, etcdLease: string | undefined, sentMs: number): Answer;
  /** Sets when the claims of records end, for people to see. */
  show(
    records: readonly { readonly key: string; readonly record: LockRecord }[],
    nowMs: number,
  ): Promise<void>;
  close(): void;
}

/** One change of one record. */
export interface ChangeLifetimes {
  /** Whether more claims have ended than one change can drop. It then does nothing else. */
  readonly isFull: boolean;
  /** Whether the change assumes more than it compares, so that a refusal may be wrong. Known after `assumed`. */
  readonly isGuessing: boolean;
  /** Returns what the claim of an operation hangs on, if the operation leaves a claim behind. */
  keep(asked: Asked, answer: Answer): string | undefined;
  /** Called once all operations are applied. */
  assumed(change: { readonly isWriting: boolean; readonly isAsked: boolean }): AssumedLeases;
}
