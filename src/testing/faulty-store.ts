import { type Clock, systemClock } from "../platform/index.ts";
import {
  type AcquireAnswer,
  type AgreedGrant,
  type ClaimRef,
  type ClaimRequest,
  type Durability,
  type GrantListener,
  type LookPage,
  type LookQuery,
  type QuorumMember,
  type RenewAnswer,
  type RenewRef,
  type Store,
  StoreUnavailableError,
  type Unsubscribe,
} from "../store/index.ts";

/** One call on its way to the store, or one push on its way back. */
export type StoreCall = {
  /** How many calls of this verb there have been, this one included. */
  readonly count: number;
} & (
  | { readonly verb: "acquire"; readonly args: readonly [request: ClaimRequest] }
  | { readonly verb: "renew"; readonly args: readonly [refs: readonly RenewRef[]] }
  | { readonly verb: "release"; readonly args: readonly [refs: readonly ClaimRef[]] }
  | { readonly verb: "look"; readonly args: readonly [query: LookQuery] }
  | {
      readonly verb: "confirm";
      readonly args: readonly [ref: ClaimRef, own: bigint, agreed: AgreedGrant];
    }
  | { readonly verb: "push"; readonly args: readonly [owner: string, refs: readonly ClaimRef[]] }
);

/** What becomes of one call. The parts can be combined, and happen in the order in which they stand here. */
export interface Fault {
  /** Holds it back for so long before it reaches the store. */
  readonly beforeMs?: number;
  /** Loses the request, which the store then never sees, or the reply to it. A push is lost either way. */
  readonly lose?: "request" | "reply";
  /** Sends it once more, so much later (0: right behind). Whoever called sees only what the first one came to. */
  readonly repeatAfterMs?: number;
  /** Holds the reply back for so long, or the failure in its place. */
  readonly afterMs?: number;
  /** Whether the caller is left without any answer for ever, where the request or the reply is lost. Default false. */
  readonly hang?: boolean;
  /** What the caller's promise rejects with. By itself it loses the request. Default: a StoreUnavailableError. */
  readonly error?: unknown;
}

/** Decides the fate of each call, at the moment it is made. `undefined` lets it through. */
export type FaultPlan = (call: StoreCall) => Fault | undefined;

export interface FaultyStoreOptions {
  /** Where delays are counted. Default: this machine's clock. */
  readonly clock?: Clock;
}

/**
 * A store behind an unreliable network: loses, delays, repeats and fails calls as the plan says, and leaves the store
 * itself intact. Whatever the plan does, a client over it may be slow or fail, but must never be wrong.
 *
 * Calls reject with what the plan says, or else with what the store rejects with. `close` is passed on untouched.
 *
 * @example
 * // The first acquire reaches the store, but its reply is lost.
 * const store = faultyStore(memoryStore(), ({ verb, count }) =>
 *   verb === "acquire" && count === 1 ? { lose: "reply" } : undefined,
 * );
 *
 * @example
 * // Cut off while `partitioned` is true: nothing arrives, nothing comes back.
 * const store = faultyStore(memoryStore(), () => (partitioned ? { lose: "request", hang: true } : undefined));
 */
export function faultyStore(store: QuorumMember, plan: FaultPlan, options?: FaultyStoreOptions): QuorumMember;
export function faultyStore(store: Store, plan: FaultPlan, options?: FaultyStoreOptions): Store;
export function faultyStore(store: Store, plan: FaultPlan, options: FaultyStoreOptions = {}): Store {
  return new FaultyStore(store, plan, options.clock ?? systemClock);
}

class FaultyStore implements QuorumMember {
  readonly name: string;
  readonly durability: Durability;
  readonly counts: boolean;
  readonly #store: Store & Partial<QuorumMember>;
  readonly #plan: FaultPlan;
  readonly #clock: Clock;
  readonly #counts = { acquire: 0, renew: 0, release: 0, look: 0, confirm: 0, push: 0 };

  constructor(store: Store, plan: FaultPlan, clock: Clock) {
    this.#store = store;
    this.#plan = plan;
    this.#clock = clock;
    this.name = store.name;
    this.durability = store.durability;
    this.counts = store.counts;
  }

  acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    const fault = this.#plan({ verb: "acquire", args: [request], count: ++this.#counts.acquire });
    return this.#send(fault, "acquire", () => this.#store.acquire(request));
  }

  renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    const fault = this.#plan({ verb: "renew", args: [refs], count: ++this.#counts.renew });
    return this.#send(fault, "renew", () => this.#store.renew(refs));
  }

  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    const fault = this.#plan({ verb: "release", args: [refs], count: ++this.#counts.release });
    return this.#send(fault, "release", () => this.#store.release(refs));
  }

  look(query: LookQuery): Promise<LookPage> {
    const fault = this.#plan({ verb: "look", args: [query], count: ++this.#counts.look });
    return this.#send(fault, "look", () => this.#store.look(query));
  }

  confirm(ref: ClaimRef, own: bigint, agreed: AgreedGrant): Promise<boolean> {
    const args = [ref, own, agreed] as const;
    const fault = this.#plan({ verb: "confirm", args, count: ++this.#counts.confirm });
    return this.#send(fault, "confirm", async () => (await this.#store.confirm?.(ref, own, agreed)) ?? false);
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    let subscribed = true;
    const deliver = (refs: readonly ClaimRef[]) => {
      if (subscribed) listener(refs);
    };
    const unsubscribe = this.#store.onGrant(owner, (refs) => {
      const fault = this.#plan({ verb: "push", args: [owner, refs], count: ++this.#counts.push });
      this.#push(fault, () => deliver(refs));
    });
    return () => {
      subscribed = false;
      unsubscribe();
    };
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  #push(fault: Fault | undefined, deliver: () => void): void {
    if (fault === undefined) {
      deliver();
      return;
    }
    if (lostPart(fault) !== undefined) return;
    const delayMs = (fault.beforeMs ?? 0) + (fault.afterMs ?? 0);
    if (delayMs > 0) this.#clock.setTimer(delayMs, deliver);
    else deliver();
    if (fault.repeatAfterMs !== undefined) this.#clock.setTimer(delayMs + fault.repeatAfterMs, deliver);
  }

  #send<T>(fault: Fault | undefined, verb: string, call: () => Promise<T>): Promise<T> {
    return fault === undefined ? call() : this.#sendFaultily(fault, verb, call);
  }

  async #sendFaultily<T>(fault: Fault, verb: string, call: () => Promise<T>): Promise<T> {
    await this.#pause(fault.beforeMs);
    const lost = lostPart(fault);
    if (lost === "request") {
      await this.#pause(fault.afterMs);
      return failed(fault, `The ${verb} request to the ${this.name} store was lost, as planned.`);
    }
    const answer = call();
    if (fault.repeatAfterMs !== undefined) this.#repeat(answer, fault.repeatAfterMs, call);
    // The outcome is kept while the delay lasts; a rejection must not count as unhandled in the meantime.
    await answer.catch(() => {});
    await this.#pause(fault.afterMs);
    if (lost === undefined) return answer;
    return failed(fault, `The reply of the ${this.name} store to ${verb} was lost, as planned.`);
  }

  #repeat<T>(first: Promise<T>, afterMs: number, call: () => Promise<T>): void {
    const again = async () => {
      // Right behind means before anybody could act upon the first answer.
      if (afterMs > 0) await Promise.all([this.#pause(afterMs), first.catch(() => {})]);
      await call();
    };
    again().catch(() => {});
  }

  async #pause(delayMs: number | undefined): Promise<void> {
    if (delayMs === undefined || delayMs <= 0) return;
    await new Promise<void>((resolve) => {
      // A test that awaits this call has nothing else to keep its process alive.
      this.#clock.setTimer(delayMs, resolve).keepAlive(true);
    });
  }
}

function lostPart(fault: Fault): "request" | "reply" | undefined {
  return fault.lose ?? (fault.error === undefined ? undefined : "request");
}

function failed(fault: Fault, message: string): Promise<never> {
  if (fault.hang === true) return new Promise(() => {});
  return Promise.reject(fault.error ?? new StoreUnavailableError(message));
}
