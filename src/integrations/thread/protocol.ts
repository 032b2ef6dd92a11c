/** What the thread of the application and that of the heartbeat say to each other, besides what stands in cells. */

/** Where the heartbeat's thread gets a store from. */
export type StoreSource =
  | { readonly url: string }
  | {
      /** A file URL of a module that exports `openStore(data)`. */
      readonly module: string;
      readonly data: unknown;
    };

/** What the thread is started with. */
export interface ThreadData {
  readonly source: StoreSource;
  readonly clockDrift: number;
  readonly requestTimeoutMs: number;
  readonly maxBlockedMs: number;
  /** One word: the microsecond of the shared time at which the event loop of the application last turned. */
  readonly life: SharedArrayBuffer;
}

/** A lease to look after. Numbers are never used again. */
export interface KeepOrder {
  readonly number: number;
  readonly key: string;
  readonly id: string;
  readonly token: string | undefined;
  readonly fence: bigint;
  readonly ttlMs: number;
  readonly renewEveryMs: number;
  /** In the shared time. */
  readonly holdUntilMs: number;
  readonly cell: SharedArrayBuffer;
}

/** To the heartbeat's thread. What is to be kept comes before what is to be dropped, which may be the same. */
export type Order = { readonly keep: readonly KeepOrder[]; readonly drop: readonly number[] } | "close";

/** From the heartbeat's thread. */
export type News =
  /** Its store knows a lease of ours, so it is the right one. */
  | { readonly type: "proven" }
  /** The cell of this lease says that it is lost. */
  | { readonly type: "lost"; readonly number: number }
  /** Its store, of which nothing has been proven yet, does not know this lease. */
  | { readonly type: "unknown"; readonly number: number }
  /** Its store, of which nothing has been proven yet, fails. */
  | { readonly type: "failing"; readonly code: string; readonly message: string };
