/** What the suite of the stores compares: a database with Holdfast over it, and what people use there without it. */
import type { Store } from "holdfast";

/** Waits for a key. Resolves to what gives it back. */
export type Peer = (key: string) => Promise<() => Promise<void>>;

export interface OpenContender {
  /** A store with connections of its own. */
  newStore(): Promise<Store>;
  /** The same with other clients, by what they are; measured beside the first of the peers. */
  readonly variants?: Readonly<Record<string, () => Promise<Store>>>;
  /** How many requests all stores have sent so far, or what stands for a request where there is no server. */
  roundTrips(): number;
  /** What these are. Default "round trips". */
  readonly roundTripsAre?: string;
  /**
   * As many writes as the cycles of so many callers take, and nothing else. Resolves to
   * what a cycle takes, in nanoseconds.
   */
  bare?(roundMs: number, callers: number): Promise<number>;
  readonly peers: Readonly<Record<string, Peer>>;
  /** By which other processes open the same store. */
  readonly url: string;
  /** A store over a pool of so many connections, and how many it has open in all: where others need one for each lock. */
  pooled?(size: number): Promise<{ readonly store: Store; connections(): Promise<number> }>;
  close(): Promise<void>;
}

export interface StoreContender {
  readonly name: string;
  /** Starts a fresh engine. */
  open(): Promise<OpenContender>;
}
