/** What the suite of the stores compares: a database with Holdfast over it, and what people use there without it. */
import type { Store } from "holdfast";

/** Waits for a key. Resolves to what gives it back. */
export type Peer = (key: string) => Promise<() => Promise<void>>;

export interface OpenContender {
  /** A store with connections of its own. */
  newStore(): Promise<Store>;
  /** How many requests all stores have sent so far, where they go to a server. */
  roundTrips?(): number;
  /**
   * As many writes as the cycles of so many callers take, and nothing else. Resolves to
   * what a cycle takes, in nanoseconds.
   */
  bare?(roundMs: number, callers: number): Promise<number>;
  readonly peers: Readonly<Record<string, Peer>>;
  /** By which other processes open the same store. */
  readonly url: string;
  /** How many connections the stores have open, where others need one for each lock. */
  connections?(): Promise<number>;
  close(): Promise<void>;
}

export interface StoreContender {
  readonly name: string;
  /** Starts a fresh engine. */
  open(): Promise<OpenContender>;
}
