/**
 * What a database has to offer so that `casStore` can keep locks in it. docs/stores/writing-a-store.md explains every
 * rule with the race that it closes, and `driverContract` of `holdfast/testing` checks them.
 *
 * How a driver fails: it rejects with `STORE_UNAVAILABLE` when the outcome is unknown or the database cannot be reached,
 * and with another code of {@link HoldfastError} where repeating would not help. Anything else is a `STORE_FAILURE`.
 */
import type { Durability } from "../../store/index.ts";
import type { Lifetimes } from "./lifetimes.ts";

/**
 * Tells one content of a key from every other. Never used twice for a key, also not after its record was removed and
 * made anew: somebody may still hold the old one, and would overwrite what they have not seen.
 */
export type Version = bigint | number | string;

/** A record as the database has it. */
export interface StoredRecord {
  readonly version: Version;
  /** What was written, unchanged: see docs/record-format.md. */
  readonly text: string;
}

/** A record with its key, in a listing. */
export interface ListedRecord {
  readonly key: string;
  readonly text: string;
}

/** A claim of another process that a change has granted. Losing one costs time only; one of a change not made, a lock. */
export interface Wake {
  /** The client whose claim it is: the name that somebody may {@link CasDriver.listen} for. */
  readonly owner: string;
  readonly id: string;
  /** What it was granted with. A waiter that is told it need not ask for its lease. */
  readonly fence: bigint;
}

/** Told of a wake: with the fence that it was sent with, or without one where the database cannot carry it. */
export type OnWake = (key: string, id: string, fence?: bigint) => void;

/** What is to become of one key. Each change is atomic by itself; those of a batch need not be so together. */
export interface Change {
  readonly key: string;
  /** The version that the key must have; undefined: there must be no record. */
  readonly expected: Version | undefined;
  /** What to write. Undefined: nothing, only compare, so that an answer from memory can be relied upon. */
  readonly text: string | undefined;
  /** Whether the record has no claims. It is kept for its fence alone, and need not be listed. */
  readonly idle: boolean;
  /** When the server's time has passed this, the record is of no use to anybody and may be removed. Whole milliseconds. */
  readonly keepUntilMs: number;
  /** The claims that this change removes because their time is up: for engines where something else than time says so. */
  readonly dropped: readonly string[];
  /** To be passed on if the change is made, together with it or afterwards. */
  readonly wakes: readonly Wake[];
  /** Set by drivers with `lifetimes`. */
  readonly leases?: AssumedLeases;
}

/**
 * What a change assumes of etcd leases. If any of it is false, the change is not made. The result is a conflict, or `untimely` if
 * the driver does not know the current record.
 */
export interface AssumedLeases {
  /** Leases of this process that claims of the change hang on: they live, and no request on them is in doubt. */
  readonly own: readonly string[];
  /** Whether the own leases need a keep-alive that was sent after the change was decided. */
  readonly fresh: boolean;
  /**
   * Whether a claim of the change hung on another lease before. The promises on that one must be kept, so the change must not be
   * made before a keep-alive of the new lease is proven. Then the own leases are fresh as well.
   */
  readonly moved: boolean;
  /** Whether the change answers an acquire, which would be refused if a lease is wrongly assumed to live. */
  readonly isAsked: boolean;
  /** Leases of other processes that are assumed to live, because holders hang on them. */
  readonly alive: readonly string[];
  /** Leases that have ended, and whose claims the change drops. */
  readonly ended: readonly string[];
}

/** Changes of different keys, decided at one moment. */
export interface SwapBatch {
  readonly changes: readonly Change[];
  /** The server's time at which they may be made: not before, and not after. Whole milliseconds. */
  readonly earliestMs: number;
  readonly latestMs: number;
  /** The stamp that the fences in it were made from, where the driver gives one. */
  readonly stamp?: bigint;
}

/** What became of one change. */
export type ChangeResult =
  /** The key had the version that was expected, and has this one now. */
  | { readonly state: "swapped"; readonly version: Version }
  /** The key has the version that was expected, and there was nothing to write. */
  | { readonly state: "same" }
  /** The key has another version; nothing was written. */
  | { readonly state: "conflict"; readonly current: StoredRecord | undefined }
  /** The server's time is not within the batch's; nothing was written. */
  | { readonly state: "untimely" }
  /** This change alone cannot be made; nothing was written. */
  | { readonly state: "failed"; readonly error: unknown };

/** Every reply tells the server's time. */
export interface Timed {
  /**
   * Milliseconds since 1970 on the clock that decides, read while this request was being served. It may have a fraction,
   * or be rounded down to whole milliseconds.
   */
  readonly nowMs: number;
}

/** What `read` answers. */
export interface ReadReply extends Timed {
  /** In the order asked; undefined where there is no record. */
  readonly records: readonly (StoredRecord | undefined)[];
}

/** What `swap` answers. */
export interface SwapReply extends Timed {
  /** In the order of the changes. */
  readonly results: readonly ChangeResult[];
}

/** What `list` answers. */
export interface ListReply extends Timed {
  /** In the order of their keys' bytes. */
  readonly records: readonly ListedRecord[];
}

/** How much may travel in one request, where the database takes less than `casStore` would send. */
export interface DriverLimits {
  /** Changes in a batch, or keys in a read. Default 256. */
  readonly changes?: number;
  /** Bytes of text after which a batch takes no further change, so it may have one record more. Default 1 MiB. */
  readonly batchBytes?: number;
  /** Bytes of one record. Default 1 MiB. */
  readonly recordBytes?: number;
}

/** A database, as `casStore` sees it. */
export interface CasDriver {
  /** For people, in messages and metrics. */
  readonly name: string;
  readonly durability: Durability;
  /**
   * Whether `swap` compares the server's time with the batch's, atomically with the change. Without that, a change that is
   * held up on its way, or that was decided by another server's clock, is made all the same. May be false until the first
   * request has shown what the server can do.
   */
  readonly checksTime: boolean;
  readonly limits?: DriverLimits;
  /**
   * What has to be done before the first request, such as connecting and checking who is there. Called before that, and again
   * until it has succeeded once. The server's time is known less exactly the longer the request takes that tells it; what is
   * done here does not count.
   */
  prepare?(): Promise<void>;
  /** Decides when claims end, if the database has no clock. */
  readonly lifetimes?: Lifetimes;
  /** Reads records; also none, for the time alone. Sees every change that was answered before it was asked. */
  read(keys: readonly string[]): Promise<ReadReply>;
  /** Makes each change whose key has the expected version. A conflict brings the current record along. */
  swap(batch: SwapBatch): Promise<SwapReply>;
  /**
   * Records whose keys begin with the prefix and come after a key (undefined: from the beginning), ordered by the bytes of
   * the key, the next `limit` of them. Idle ones may be left out. Fewer than `limit` means that there are no more.
   */
  list(prefix: string, after: string | undefined, limit: number): Promise<ListReply>;
  /**
   * Removes up to `limit` records whose `keepUntilMs` has passed by the server's clock, and says how many. Absent where the
   * database does that by itself.
   */
  sweep?(limit: number): Promise<number>;
  /**
   * Calls back for every wake of this owner, whichever process made the change, and resolves when it does. Mends itself
   * when its connection breaks. Resolves with what ends it. Absent where the database cannot push.
   */
  listen?(owner: string, onWake: OnWake): Promise<() => void>;
  /** Lets go of what the driver itself opened. */
  close?(): Promise<void>;
}
