/**
 * How waiting claims of this process learn that they were granted.
 *
 * Whatever this process sees of a record, it looks for its own waiting claims in it: a grant that was made here, or that
 * shows up in a record that came back for another reason, is told at once. For grants by others the driver calls, if the
 * database can push. Where it cannot, the keys that somebody here waits for are looked at again now and then, all in one
 * request: soon while things move, seldom while nothing does.
 */
import type { Clock, Timer } from "../../platform/index.ts";
import type { LockRecord } from "../../record/index.ts";
import type { GrantListener, GrantRef, Unsubscribe } from "../../store/index.ts";
import type { CasDriver } from "./driver.ts";

/**
 * How long a request that waits is held back until its owner listens, which spares the look that follows where that takes longer. The lock
 * may be free, and there may be nobody who ever hears anything, as behind a pooler.
 */
const READY_MS = 100;
/** After a failure to listen, how long until the next attempt: so long at first, doubling up to so long. */
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 30_000;
/** Entries of claims that nobody has given up properly are removed when there are so many more than the last time. */
const PURGE_FROM = 1_000;

export interface WakeUpOptions {
  readonly driver: CasDriver;
  readonly clock: Clock;
  readonly minPollMs: number;
  readonly maxPollMs: number;
  /** Looks at a key again. Settles when that is done; what it saw is told to `seen`. */
  lookAgain(key: string): Promise<unknown>;
}

interface Owner {
  readonly name: string;
  readonly listener: GrantListener;
  refs: GrantRef[];
  /** Whether the driver calls. */
  listening: boolean;
  ready: Promise<void> | undefined;
  retryMs: number;
  retry: Timer | undefined;
  end: (() => void) | undefined;
  /** Lets those go on who wait for it to be ready. */
  settle: () => void;
  ended: boolean;
}

interface Waiter {
  /** By name: it may listen anew while the claim waits, as a client that comes back to a lock server does. */
  readonly ownerName: string;
  readonly untilMs: number;
}

/** Those who wait here for one key. */
interface Crowd {
  readonly byId: Map<string, Waiter>;
  /** The latest fence that was seen. Another one means that somebody was granted the key. */
  fence: bigint;
}

export class WakeUps {
  readonly #options: WakeUpOptions;
  readonly #owners = new Map<string, Owner>();
  /** Waiting claims of this process, by key and id. */
  readonly #waiters = new Map<string, Crowd>();
  #waiterCount = 0;
  #purgeAt = PURGE_FROM;
  #toTell: Owner[] = [];
  #poll: Timer | undefined;
  #pollMs: number;
  #isLooking = false;
  #closed = false;

  constructor(options: WakeUpOptions) {
    this.#options = options;
    this.#pollMs = options.minPollMs;
  }

  /** Whether an owner is told here. */
  isLocal(name: string): boolean {
    return this.#owners.has(name);
  }

  listen(name: string, listener: GrantListener): Unsubscribe {
    if (this.#closed) return () => {};
    const before = this.#owners.get(name);
    if (before !== undefined) this.#end(before);
    const owner: Owner = {
      name,
      listener,
      refs: [],
      listening: false,
      ready: undefined,
      retryMs: FIRST_RETRY_MS,
      retry: undefined,
      end: undefined,
      settle: () => {},
      ended: false,
    };
    this.#owners.set(name, owner);
    if (this.#options.driver.listen !== undefined) owner.ready = this.#untilListening(owner);
    return () => {
      if (this.#owners.get(name) === owner) this.#owners.delete(name);
      this.#end(owner);
    };
  }

  /** Undefined once an owner listens, or has been found unable to. */
  ready(name: string): Promise<void> | undefined {
    return this.#owners.get(name)?.ready;
  }

  /** Whether a grant to this owner would go unheard as yet, though the driver is to call. */
  isUnheard(name: string): boolean {
    return this.#options.driver.listen !== undefined && this.#owners.get(name)?.listening === false;
  }

  /** A claim was asked for while its owner was not listening, and the answer is that it waits. */
  waitsUnheard(key: string, ownerName: string): void {
    if (this.#owners.get(ownerName)?.listening === true) this.#lookAt([key]);
  }

  /** A claim waits, until then at least. Only those are kept in mind for whom somebody listens here. */
  waits(key: string, id: string, ownerName: string, untilMs: number): void {
    if (!this.#owners.has(ownerName)) return;
    let crowd = this.#waiters.get(key);
    if (crowd === undefined) {
      crowd = { byId: new Map(), fence: 0n };
      this.#waiters.set(key, crowd);
    }
    if (!crowd.byId.has(id)) this.#waiterCount++;
    crowd.byId.set(id, { ownerName, untilMs });
    if (this.#waiterCount > this.#purgeAt) this.#purge();
    this.#schedulePoll();
  }

  /** A claim goes on waiting. Whether it was known to wait. */
  stillWaits(key: string, id: string, untilMs: number): boolean {
    const byId = this.#waiters.get(key)?.byId;
    const waiter = byId?.get(id);
    if (byId === undefined || waiter === undefined) return false;
    byId.set(id, { ownerName: waiter.ownerName, untilMs });
    return true;
  }

  /** A claim waits no more, or its caller knows what became of it. */
  forget(key: string, id: string): void {
    const crowd = this.#waiters.get(key);
    if (crowd === undefined || !crowd.byId.delete(id)) return;
    this.#waiterCount--;
    if (crowd.byId.size === 0) this.#waiters.delete(key);
  }

  /** Looks for grants of this process in a record that the server has, or had a moment ago. */
  seen(key: string, record: LockRecord): void {
    const crowd = this.#waiters.get(key);
    if (crowd === undefined || crowd.fence === record.fence) return;
    crowd.fence = record.fence;
    this.#hurry();
    for (const { id, fence } of record.held) {
      const waiter = crowd.byId.get(id);
      if (waiter === undefined) continue;
      this.forget(key, id);
      const owner = this.#owners.get(waiter.ownerName);
      if (owner !== undefined) this.#tell(owner, { key, id, fence });
    }
  }

  /** Looks again at once at the keys that somebody waits for here, if it may concern them. */
  lookAgain(mayConcern: (key: string) => boolean): void {
    this.#lookAt([...this.#waiters.keys()].filter(mayConcern));
  }

  close(): void {
    this.#closed = true;
    this.#poll?.cancel();
    for (const owner of this.#owners.values()) this.#end(owner);
    this.#owners.clear();
    this.#waiters.clear();
  }

  #tell(owner: Owner, ref: GrantRef): void {
    if (owner.refs.length === 0) this.#toTell.push(owner);
    owner.refs.push(ref);
    if (this.#toTell.length > 1 || owner.refs.length > 1) return;
    // After the answers of the same flight, and where a listener that throws stops nothing.
    queueMicrotask(() => {
      for (const next of this.#toTell.splice(0)) {
        const refs = next.refs.splice(0);
        if (!next.ended) next.listener(refs);
      }
    });
  }

  // Listening.

  #untilListening(owner: Owner): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#options.clock.setTimer(READY_MS, () => owner.settle());
      timer.keepAlive(true);
      owner.settle = () => {
        timer.cancel();
        owner.ready = undefined;
        resolve();
      };
      this.#subscribe(owner);
    });
  }

  /**
   * Whoever begins to listen looks once at the keys that it waits for already:
   *
   * 1. P's claim is queued, and nobody listens for P yet.
   * 2. Q gives the lock back, which grants it to P's claim. That is notified, and nobody hears it.
   * 3. P listens. From here on it would not look again by itself, so it would learn of its lock at its next heartbeat.
   *
   * The answer to 1 may come after 3. Then the claim is not among those that wait yet, and its key is looked at when it is: `waitsUnheard`.
   */
  #subscribe(owner: Owner): void {
    const { driver, clock } = this.#options;
    const onWake = (key: string, id: string, fence?: bigint) => {
      if (owner.ended) return;
      this.forget(key, id);
      this.#tell(owner, fence === undefined ? { key, id } : { key, id, fence });
    };
    // A driver that throws, instead of rejecting, has failed like any other.
    const listening = (async () => driver.listen?.(owner.name, onWake))();
    listening.then(
      (end) => {
        owner.listening = true;
        if (owner.ended) end?.();
        else owner.end = end;
        owner.settle();
        if (!owner.ended) this.#lookAt(this.#keysOf((name) => name === owner.name));
      },
      () => {
        owner.settle();
        if (owner.ended) return;
        // Meanwhile its keys are looked at again now and then.
        this.#schedulePoll();
        owner.retry = clock.setTimer(owner.retryMs, () => this.#subscribe(owner));
        owner.retryMs = Math.min(2 * owner.retryMs, MAX_RETRY_MS);
      },
    );
  }

  #end(owner: Owner): void {
    owner.ended = true;
    owner.retry?.cancel();
    owner.settle();
    owner.end?.();
    owner.end = undefined;
  }

  // Looking again.

  #hurry(): void {
    this.#pollMs = this.#options.minPollMs;
    this.#poll?.cancel();
    this.#poll = undefined;
    this.#schedulePoll();
  }

  #schedulePoll(): void {
    if (this.#poll !== undefined || this.#isLooking || this.#closed || this.#waiters.size === 0) return;
    if ([...this.#owners.values()].every((owner) => owner.listening)) return;
    this.#poll = this.#options.clock.setTimer(this.#pollMs, () => {
      this.#poll = undefined;
      void this.#lookAgain();
    });
  }

  async #lookAgain(): Promise<void> {
    this.#purge();
    this.#pollMs = Math.min(2 * this.#pollMs, this.#options.maxPollMs);
    this.#isLooking = true;
    const unheard = this.#keysOf((name) => this.#owners.get(name)?.listening === false);
    // An outage is told to whoever asks for something; a look that nobody asked for may fail.
    await Promise.allSettled(unheard.map((key) => this.#options.lookAgain(key)));
    this.#isLooking = false;
    this.#schedulePoll();
  }

  /** An outage is told to whoever asks for something, and heartbeats bring the rest. */
  #lookAt(keys: readonly string[]): void {
    for (const key of keys) this.#options.lookAgain(key).catch(() => {});
  }

  /** The keys that one of these waits for. */
  #keysOf(isMeant: (ownerName: string) => boolean): string[] {
    const keys: string[] = [];
    for (const [key, { byId }] of this.#waiters) {
      if ([...byId.values()].some(({ ownerName }) => isMeant(ownerName))) keys.push(key);
    }
    return keys;
  }

  #purge(): void {
    const nowMs = this.#options.clock.monotonicMs();
    for (const [key, { byId }] of this.#waiters) {
      for (const [id, { untilMs }] of byId) if (untilMs <= nowMs) this.forget(key, id);
    }
    this.#purgeAt = Math.max(PURGE_FROM, 2 * this.#waiterCount);
  }
}
