import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createLocks, type Locks, type LocksOptions } from "../../client/index.ts";
import { type Clock, systemClock } from "../../platform/index.ts";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  type ErrorCode,
  type HeldAnswer,
  HoldfastError,
  type KeyStatus,
  type RefusalReason,
  type RenewAnswer,
  type Store,
  UNLIMITED,
  type WaitingAnswer,
} from "../../store/index.ts";
import type { OpenOptions, StoreHarness, StoreWorld } from "./harness.ts";

/** Defines one test. What it needs beyond the four verbs decides whether it is skipped. */
export type DefineTest = (name: string, body: (trial: Trial) => Promise<void>, needs?: Needs) => void;

export interface Needs {
  readonly counts?: true;
  readonly shared?: true;
  readonly maxWaiters?: number;
}

/** Lifetimes in ticks. Nothing waits for a long one; a test sleeps through a short one. */
export const SHORT = 20;
export const LONG = 6_000;
/** A sleep after which a claim of a short ttl is surely over: also where the store is not quite sure of the time, as the machine is busy. */
export const PAST_SHORT = 28;
/** How long a test waits for what must happen soon, such as a pushed grant. */
const SOON = 500;

/** One run of one test: its stores, its clients, its keys and its time. */
export class Trial {
  /** The instance that a test uses unless it says otherwise. */
  readonly store: Store;
  readonly clock: Clock;
  /** What all keys of this test begin with, and no others. */
  readonly prefix = `contract:${randomUUID()}:`;
  readonly #world: StoreWorld;
  readonly #tickMs: number;
  readonly #clients: Locks[] = [];
  #names = 0;

  private constructor(world: StoreWorld, store: Store, tickMs: number) {
    this.#world = world;
    this.#tickMs = tickMs;
    this.store = store;
    this.clock = world.clock ?? systemClock;
  }

  /** Opens a world, runs the test in it, and closes whatever the test has opened. */
  static async run(
    harness: StoreHarness,
    options: OpenOptions,
    body: (trial: Trial) => Promise<void>,
  ): Promise<void> {
    const world = await harness.open(options);
    try {
      const trial = new Trial(world, await world.store(), harness.tickMs ?? 10);
      try {
        await body(trial);
      } finally {
        await trial.#closeClients();
      }
    } finally {
      await world.close();
    }
  }

  // Time.

  ms(ticks: number): number {
    return ticks * this.#tickMs;
  }

  async sleep(ticks: number): Promise<void> {
    const ms = this.ms(ticks);
    if (this.#world.sleep !== undefined) await this.#world.sleep(ms);
    else await new Promise((resolve) => setTimeout(resolve, ms));
  }

  /** Lets time pass until the check holds; fails when it does not hold soon. */
  async eventually(what: string, check: () => boolean | Promise<boolean>): Promise<void> {
    for (let ticks = 0; ticks < SOON; ticks++) {
      // The first look follows a sleep of no time, which lets happen what needs none.
      await this.sleep(Math.min(ticks, 1));
      if (await check()) return;
    }
    assert.fail(`It did not come about that ${what}.`);
  }

  /** Lets time pass until the promise settles; fails when that does not happen soon. */
  async soon<T>(promise: Promise<T>): Promise<T> {
    let settled = false;
    const mark = () => {
      settled = true;
    };
    promise.then(mark, mark);
    await this.eventually("a call settles", () => settled);
    return promise;
  }

  /** Starts something that a test awaits later or never, whose rejection must not go unhandled until then. */
  begin<T>(promise: Promise<T>): Promise<T> {
    promise.catch(() => {});
    return promise;
  }

  // Instances and clients.

  /** Another instance over the same backend. */
  other(): Promise<Store> {
    return this.#world.store();
  }

  /** A client over an instance, closed when the test ends. What it warns of, such as dropped leases, is no news. */
  client(store: Store = this.store, options: LocksOptions = {}): Locks {
    const defaults: LocksOptions = { closeStore: false, clock: this.clock, onWarning: () => {} };
    const locks = createLocks(store, { ...defaults, ...options });
    this.#clients.push(locks);
    return locks;
  }

  async #closeClients(): Promise<void> {
    await this.soon(this.begin(Promise.all(this.#clients.map((locks) => locks.close()))));
  }

  // Requests. Each has an id and a token of its own, a long ttl, and does not wait.

  key(name = "key"): string {
    return `${this.prefix}${name}`;
  }

  mutex(key: string, over: Partial<ClaimRequest> = {}): ClaimRequest {
    const name = ++this.#names;
    return {
      key,
      id: `id-${name}-${randomUUID()}`,
      token: `token-${name}-${randomUUID()}`,
      weight: 1,
      limit: 1,
      priority: 0,
      ttlMs: this.ms(LONG),
      wait: false,
      owner: `owner-${name}`,
      info: "",
      application: "",
      ...over,
    };
  }

  reader(key: string, over: Partial<ClaimRequest> = {}): ClaimRequest {
    return this.mutex(key, { limit: UNLIMITED, ...over });
  }

  permits(key: string, weight: number, limit: number, over: Partial<ClaimRequest> = {}): ClaimRequest {
    return this.mutex(key, { weight, limit, ...over });
  }

  // Verbs together with what they must answer.

  async hold(request: ClaimRequest, store: Store = this.store): Promise<HeldAnswer> {
    return expectHeld(await store.acquire(request));
  }

  /** Asks with `wait`, and returns the request for what follows. */
  async queue(request: ClaimRequest, store: Store = this.store): Promise<ClaimRequest> {
    await this.wait(request, store);
    return request;
  }

  async wait(request: ClaimRequest, store: Store = this.store): Promise<WaitingAnswer> {
    const answer = await store.acquire({ ...request, wait: true });
    assert.equal(answer.state, "waiting");
    return answer;
  }

  async refuse(
    request: ClaimRequest,
    reason: RefusalReason = "contended",
    store: Store = this.store,
  ): Promise<void> {
    assert.deepEqual(await store.acquire(request), { state: "refused", reason });
  }

  async renew(ref: ClaimRef, ttlMs?: number, store: Store = this.store): Promise<RenewAnswer> {
    const answers = await store.renew([ttlMs === undefined ? refOf(ref) : { ...refOf(ref), ttlMs }]);
    assert.equal(answers.length, 1);
    return answers[0] as RenewAnswer;
  }

  async renewHeld(ref: ClaimRef, ttlMs?: number, store?: Store): Promise<HeldAnswer> {
    return expectHeld(await this.renew(ref, ttlMs, store));
  }

  async release(ref: ClaimRef, store: Store = this.store): Promise<boolean> {
    const answers = await store.release([refOf(ref)]);
    assert.equal(answers.length, 1);
    return answers[0] as boolean;
  }

  /** In which state each claim is, as a heartbeat of each tells: "h" held, "w" waiting, "g" gone. */
  async states(...refs: readonly ClaimRef[]): Promise<string> {
    const answers = await this.store.renew(refs.map(refOf));
    return answers.map((answer) => answer.state[0]).join("");
  }

  async status(key: string, maxClaims = 100, store: Store = this.store): Promise<KeyStatus> {
    const page = await store.look({ key, maxClaims });
    assert.equal(page.keys.length, 1, "a look at one key answers with that key");
    const status = page.keys[0] as KeyStatus;
    assert.equal(status.key, key);
    return status;
  }

  /** Fails unless nobody holds the key nor waits for it. */
  async expectIdle(key: string): Promise<void> {
    const { heldCount, heldWeight, waitingCount } = await this.status(key);
    assert.deepEqual(
      { heldCount, heldWeight, waitingCount },
      { heldCount: 0, heldWeight: 0, waitingCount: 0 },
    );
  }

  /** Lets time pass until so many claims wait for the key. */
  async untilWaiting(key: string, count: number): Promise<void> {
    await this.eventually(
      `${count} wait for "${key}"`,
      async () => (await this.status(key)).waitingCount === count,
    );
  }
}

/** What renew and release need of a request, and no more. */
export function refOf({ key, id, token }: ClaimRef): ClaimRef {
  return token === undefined ? { key, id } : { key, id, token };
}

function expectHeld(answer: AcquireAnswer | RenewAnswer): HeldAnswer {
  assert.equal(answer.state, "held");
  return answer;
}

/** Fails unless the call rejects with a HoldfastError of that code; also when it throws instead of rejecting. */
export async function expectCode(code: ErrorCode, call: () => Promise<unknown>): Promise<HoldfastError> {
  let caught: unknown;
  await call().catch((error: unknown) => {
    caught = error;
  });
  assert.ok(caught instanceof HoldfastError, `it was to reject with ${code}, and came to: ${String(caught)}`);
  assert.equal(caught.code, code);
  return caught;
}

/** Fails unless each number is above the one before. */
export function expectGrowing(fences: readonly bigint[]): void {
  for (const [index, fence] of fences.entries()) {
    const before = fences[index - 1] ?? 0n;
    assert.ok(fence > before, `fence ${fence} does not follow ${before}`);
  }
}
