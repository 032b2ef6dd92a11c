/** A client whose life is that of an application: what all frameworks need of it, said once. */

import { createLocks, type Locks, type LocksOptions, locksOptionNames } from "../../client/index.ts";
import {
  bounds,
  checkInteger,
  checkOptionNames,
  HoldfastError,
  invalid,
  type Store,
} from "../../store/index.ts";

/** Where the locks of an application come from, and how they end. */
export interface HostOptions extends LocksOptions {
  /** The store. The client is made over it, and both are closed with the application. */
  readonly store?: Store;
  /** A client that exists already, in place of a store. Whoever made it closes it. */
  readonly locks?: Locks;
  /**
   * How long the leases that are open when the application is done have to end by themselves, before they are cut off. 0 to
   * 86,400,000. Default 5,000.
   */
  readonly graceMs?: number;
}

export interface HostedLocks {
  readonly locks: Locks;
  /** Aborts when the application begins to stop: what waits for a lock then gives up, so that it is in nobody's way. */
  readonly stopping: AbortSignal;
  /** The application begins to stop. What holds a lock goes on. */
  stop(): void;
  /** The application is done. */
  close(): Promise<void>;
}

const hostOptionNames: Readonly<Record<keyof HostOptions, true>> = {
  store: true,
  locks: true,
  graceMs: true,
  ...locksOptionNames,
};

export function hostLocks(options: HostOptions): HostedLocks {
  checkOptionNames("an application's locks", options, hostOptionNames);
  const { store, locks: given, graceMs = 5_000, ...locksOptions } = options;
  if ((store === undefined) === (given === undefined)) {
    throw invalid(
      `Pass exactly one of store and locks: ${store === undefined ? "neither" : "both"} was given.`,
    );
  }
  const names = Object.keys(options) as (keyof HostOptions)[];
  const isIgnored = (name: keyof HostOptions) => name !== "locks" && options[name] !== undefined;
  const ignored = given === undefined ? [] : names.filter(isIgnored);
  if (ignored.length > 0) {
    throw invalid(
      `${ignored.join(", ")} must not be set together with locks. Remove it, or pass it to createLocks.`,
    );
  }
  checkInteger("graceMs", graceMs, 0, bounds.maxTtlMs);
  const locks = given ?? createLocks(store as Store, locksOptions);
  const controller = new AbortController();
  const hosted: HostedLocks = {
    locks,
    stopping: controller.signal,
    stop() {
      const message = "The application is stopping, so it does not wait for this lock.";
      controller.abort(new HoldfastError("CLOSED", message));
    },
    async close() {
      hosted.stop();
      if (given === undefined) await locks.close({ graceMs });
    },
  };
  return hosted;
}
