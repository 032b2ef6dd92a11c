import type { Clock } from "../../platform/index.ts";
import type { Store } from "../../store/index.ts";

/** What the suite asks of the stores that a test opens. */
export interface OpenOptions {
  /** How many claims may wait for one key. Absent: whatever the store does by itself. */
  readonly maxWaiters?: number;
}

/** The stores of one test, and the time they live in. */
export interface StoreWorld {
  /**
   * Another instance over the same backend, as another process would have it. A store that cannot be shared between
   * processes returns the same instance again, and its harness says `shared: false`.
   */
  store(): Promise<Store>;
  /** The clock that clients over these stores use. Default: this machine's. */
  readonly clock?: Clock;
  /** Lets that much time pass, for the stores and for the clock. Default: waits for it. */
  sleep?(ms: number): Promise<void>;
  /** Closes every instance that was handed out, also those that a test has closed before. */
  close(): Promise<void>;
}

/**
 * How the contract suite gets at a store.
 *
 * @example
 * const harness: StoreHarness = {
 *   name: "redis",
 *   async open(options) {
 *     const stores: Store[] = [];
 *     return {
 *       async store() {
 *         const store = redisStore(redis, options);
 *         stores.push(store);
 *         return store;
 *       },
 *       async close() {
 *         await Promise.all(stores.map((store) => store.close()));
 *       },
 *     };
 *   },
 * };
 */
export interface StoreHarness {
  /** The name under which the tests are reported. */
  readonly name: string;
  /**
   * The unit of time. The shortest ttl that a test uses is 20 of it, so a store must usually answer within a few.
   * Default 10, which makes that ttl 200 ms.
   */
  readonly tickMs?: number;
  /** What the store says in `counts`. Without it, the tests about semaphores are skipped. Default true. */
  readonly counts?: boolean;
  /** Whether `open` heeds `maxWaiters`. Without it, the test about full queues is skipped. Default true. */
  readonly bounded?: boolean;
  /** Whether instances are independent and share a backend, as those of several processes. Default true. */
  readonly shared?: boolean;
  /**
   * Opens what one test uses. Tests never share keys, so all of them may share one backend, and run at the same time.
   * A rejection fails the test.
   */
  open(options: OpenOptions): Promise<StoreWorld>;
}

/** The two functions of a test runner that the suite calls; those of Vitest, Jest, Mocha and `node:test` fit. */
export interface TestRunner {
  describe(name: string, define: () => void): unknown;
  readonly it: {
    (name: string, body: () => Promise<void>): unknown;
    /** Reports a test that this store cannot be put to. */
    skip(name: string, body: () => Promise<void>): unknown;
  };
}
