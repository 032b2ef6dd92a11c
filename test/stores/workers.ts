/** Workers that take turns at one lock while its store is being tormented, and what must be true of them all the while. */
import { setTimeout as sleep } from "node:timers/promises";
import { type Clock, createLocks, HoldfastError, type Locks, type Store, systemClock } from "holdfast";
import { expect } from "vitest";

/** A store with a connection of its own, as another process would have it. */
export interface Participant {
  readonly store: Store;
  /** Resolves when its connection is of use again, which is the business of the client that it brought. Default: at once. */
  isBack?(): Promise<unknown>;
  /** The clock of its machine. Default: this machine's. */
  readonly clock?: Clock;
  /** Ends the connection, after the store was closed. */
  end(): unknown;
}

export interface WorkersOptions {
  readonly connects: readonly (() => Promise<Participant>)[];
  readonly ttlMs: number;
  /** How long each holds the lock. */
  readonly holdMs?: number;
}

/** The errors that an outage may cause. Any other error is a failure. */
const expected = new Set(["STORE_UNAVAILABLE", "LEASE_LOST"]);

interface Grant {
  readonly fence: bigint;
  readonly worker: number;
  readonly askedMs: number;
  readonly learntMs: number;
}

/** When a store forgot what it had granted: between these two moments. */
interface Loss {
  readonly beganMs: number;
  readonly doneMs: number;
}

export class Workers {
  readonly ttlMs: number;
  /** The leases in the order in which they were learnt of. */
  readonly #grants: Grant[] = [];
  readonly #losses: Loss[] = [];
  readonly #holdMs: number;
  readonly #participants: Participant[] = [];
  readonly #locks: Locks[] = [];
  readonly #turns: number[] = [];
  readonly #loops: Promise<void>[] = [];
  readonly #unexpected: unknown[] = [];
  /** The workers that believe to hold the lock: two at a time only after the loss of an acknowledged write. */
  readonly #holding = new Set<number>();
  overlaps = 0;
  /** The most that held the lock at a time by the store's own account. */
  #mostHeld = 0;
  #stopped = false;

  private constructor({ ttlMs, holdMs = 10 }: WorkersOptions) {
    this.ttlMs = ttlMs;
    this.#holdMs = holdMs;
  }

  static async start(options: WorkersOptions): Promise<Workers> {
    const workers = new Workers(options);
    await workers.join(options.connects);
    workers.#loops.push(workers.#watch());
    return workers;
  }

  /** Adds workers, and waits until all have had a turn. */
  async join(connects: WorkersOptions["connects"]): Promise<void> {
    for (const connect of connects) {
      const participant = await connect();
      this.#participants.push(participant);
      const clock = participant.clock ?? systemClock;
      this.#locks.push(createLocks(participant.store, { onWarning: () => {}, clock }));
    }
    for (const index of this.#locks.keys()) {
      if (this.#turns[index] !== undefined) continue;
      this.#turns.push(0);
      this.#loops.push(this.#work(index));
    }
    await this.servesAll(10_000);
  }

  /** Waits until every worker has had a turn from now on, or from when all are back at their servers. */
  async servesAll(withinMs: number): Promise<void> {
    await Promise.all(this.#participants.map((participant) => participant.isBack?.()));
    const before = [...this.#turns];
    const unserved = () => [...before.keys()].filter((index) => this.#turns[index] === before[index]);
    let livedMs = 0;
    while (unserved().length > 0 && livedMs < withinMs) livedMs += await live();
    expect(unserved(), `workers without a turn for ${withinMs} ms`).toEqual([]);
  }

  /** Makes the store forget what it has granted, while connections stay and replies may be under way. */
  async lose(forget: () => Promise<unknown>): Promise<void> {
    const beganMs = performance.now();
    await forget();
    this.#losses.push({ beganMs, doneMs: performance.now() });
  }

  /** Ends the work, and checks what must have been true throughout: with two masters at a time, that is less. */
  async stop({ masters = 1 } = {}): Promise<void> {
    // On a busy machine, those who look may have met nobody yet.
    for (let livedMs = 0; this.#mostHeld === 0 && livedMs < 10_000; ) livedMs += await live();
    this.#stopped = true;
    await Promise.all(this.#loops);
    await Promise.all(this.#locks.map((locks) => locks.close()));
    for (const participant of this.#participants) await participant.end();
    expect(this.#unexpected).toEqual([]);
    expect(this.#mostHeld, "holders at a time in the store").toBe(1);
    expect(this.#grants.length).toBeGreaterThan(this.#locks.length);
    if (masters === 1) {
      expect(new Set(this.fences).size, "different fences").toBe(this.#grants.length);
      expect(fallen(this.#grants, this.#losses), "fences that did not grow").toEqual([]);
    }
    for (const worker of this.#locks.keys()) {
      const own = this.#grants.filter((grant) => grant.worker === worker);
      expect(fallen(own), `fences of worker ${worker} that did not grow`).toEqual([]);
    }
  }

  /** The fences in the order in which they were learnt of. */
  get fences(): readonly bigint[] {
    return this.#grants.map(({ fence }) => fence);
  }

  /** The highest fence so far. */
  get highest(): bigint {
    return this.fences.toSorted((a, b) => (a < b ? -1 : 1)).at(-1) ?? 0n;
  }

  async #watch(): Promise<void> {
    while (!this.#stopped) {
      const { heldCount } = await this.#locks[0]!.inspect("work").catch(() => ({ heldCount: 0 }));
      this.#mostHeld = Math.max(this.#mostHeld, heldCount);
      await sleep(20);
    }
  }

  async #work(index: number): Promise<void> {
    const mutex = this.#locks[index]!.mutex("work", { ttlMs: this.ttlMs });
    while (!this.#stopped) {
      try {
        const askedMs = performance.now();
        const lease = await mutex.acquire({ waitMs: 20_000 });
        this.#grants.push({ fence: lease.fence, worker: index, askedMs, learntMs: performance.now() });
        this.#turns[index]!++;
        if (this.#holding.size > 0) this.overlaps++;
        this.#holding.add(index);
        const free = () => this.#holding.delete(index);
        lease.signal.addEventListener("abort", free);
        await sleep(this.#holdMs);
        if (lease.held) free();
        await lease.release();
      } catch (error) {
        if (!(error instanceof HoldfastError) || !expected.has(error.code)) this.#unexpected.push(error);
        await sleep(20);
      }
    }
  }
}

/** The most that one round of the event loop counts for. */
const ROUND_MS = 25;

/**
 * Lets a moment pass, and returns how long it was by what this process got to do. A machine that is busy with others keeps it
 * from its heartbeats as well, so that time does not count.
 */
async function live(): Promise<number> {
  const startMs = performance.now();
  await sleep(5);
  return Math.min(performance.now() - startMs, ROUND_MS);
}

/**
 * Grants with a fence that is not above all that were learnt of before, and what one needs to know to find out why.
 *
 * A store that forgets a grant whose reply is still under way may grant the lock to another, who learns of it first: then the
 * lower fence is learnt of after the higher one, and both are right. A mutex has one holder, so that happens once for each loss.
 */
function fallen(grants: readonly Grant[], losses: readonly Loss[] = []): readonly string[] {
  const excuses = new Set(losses);
  let highest: Grant | undefined;
  const wrong: string[] = [];
  for (const grant of grants) {
    if (highest === undefined || grant.fence > highest.fence) {
      highest = grant;
      continue;
    }
    const { learntMs } = highest;
    const excuse = [...excuses].find(({ beganMs, doneMs }) => grant.askedMs < doneMs && beganMs < learntMs);
    if (excuse !== undefined) {
      excuses.delete(excuse);
      continue;
    }
    const laterMs = (grant.learntMs - learntMs).toFixed(3);
    wrong.push(
      `${grant.fence} of worker ${grant.worker}, ${laterMs} ms after ${highest.fence} of worker ${highest.worker}`,
    );
  }
  return wrong;
}
