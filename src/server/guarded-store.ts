/** The store as the server's clients get at it: each with its own claims, within the server's limits, measured, and counted. */

import { isScheduleNote } from "../coordination/index.ts";
import { failureOf } from "../protocol/index.ts";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  type GrantListener,
  HoldfastError,
  invalid,
  type LookPage,
  type LookQuery,
  type RenewAnswer,
  type RenewRef,
  type Store,
  UNLIMITED,
  type Unsubscribe,
} from "../store/index.ts";
import type { Asker, Audit } from "./audit.ts";
import { HEALTH_KEY } from "./health.ts";
import type { Client, Ledger } from "./ledger.ts";
import type { ResolvedLimits } from "./limits.ts";
import { countUp, type Metrics } from "./metrics.ts";
import { Owners } from "./owners.ts";
import { type Owner, stored } from "./ownership.ts";
import { renewPermitted } from "./renew-permitted.ts";

export class GuardedStore {
  readonly store: Store;
  readonly #limits: ResolvedLimits;
  readonly #ledger: Ledger;
  readonly #metrics: Metrics;
  readonly #audit: Audit;
  readonly #owners = new Owners((owner, listener) => this.#subscribe(owner, listener));

  constructor(store: Store, limits: ResolvedLimits, ledger: Ledger, metrics: Metrics, audit: Audit) {
    this.store = store;
    this.#limits = limits;
    this.#ledger = ledger;
    this.#metrics = metrics;
    this.#audit = audit;
  }

  async acquire(asked: ClaimRequest, asker: Asker): Promise<AcquireAnswer> {
    const request = stored(asked, asker.client);
    const full = this.#admit(request, asker.client);
    const answer = await this.#ask("acquire", () =>
      this.store.acquire(full ? { ...request, wait: false } : request),
    );
    const nowMs = performance.now();
    // The store counts from when it was asked, or later; the ledger need not be exact.
    if (answer.state === "held") this.#ledger.held(request, asker, nowMs, answer);
    else if (answer.state === "waiting") this.#ledger.waiting(request, asker, nowMs, answer.expiresInMs);
    else if (full && answer.reason === "contended")
      return this.#refused({ state: "refused", reason: "queue-full" });
    else return this.#refused(answer);
    return answer;
  }

  /** One that asks for too long must not cost the others of the call their leases. */
  async renew(refs: readonly RenewRef[], asker: Asker): Promise<readonly RenewAnswer[]> {
    const refusals = refs.map((ref) => this.#ttlRefusal(ref));
    if (refs.length === 1 && refusals[0] !== undefined) throw refusals[0];
    return renewPermitted(refs, refusals, (permitted) =>
      ownFirst(permitted, asker.client, isGone, (named) => this.#renew(named, asker)),
    );
  }

  async #renew(refs: readonly RenewRef[], asker: Asker): Promise<readonly RenewAnswer[]> {
    const answers = await this.#ask("renew", () => this.store.renew(refs));
    const nowMs = performance.now();
    for (const [index, ref] of refs.entries()) {
      const answer = answers[index];
      if (answer?.state === "held") {
        this.#metrics.renewals++;
        this.#ledger.held(ref, asker, nowMs, answer);
      } else if (answer?.state === "waiting") {
        this.#metrics.renewals++;
        this.#ledger.waiting(ref, asker, nowMs, answer.expiresInMs);
      } else if (answer?.state === "gone") this.#ledger.gone(ref);
    }
    return answers;
  }

  async release(refs: readonly ClaimRef[], asker: Asker): Promise<readonly boolean[]> {
    const forced = (outcome: "not-found" | "failed", answers: readonly boolean[] = []) => {
      for (const [index, ref] of refs.entries())
        if (ref.token === undefined && answers[index] !== true) this.#audit.forced(ref, asker, outcome);
    };
    try {
      const answers = await ownFirst(refs, asker.client, isNot, (named) => this.#release(named, asker));
      forced("not-found", answers);
      return answers;
    } catch (error) {
      forced("failed");
      throw error;
    }
  }

  async #release(refs: readonly ClaimRef[], asker: Asker): Promise<readonly boolean[]> {
    const released = await this.#ask("release", () => this.store.release(refs));
    const nowMs = performance.now();
    for (const [index, ref] of refs.entries()) {
      if (released[index] !== true) continue;
      this.#metrics.releases++;
      const known = this.#ledger.released(ref, nowMs);
      if (ref.token === undefined) {
        this.#metrics.forceReleases++;
        this.#audit.forced(ref, asker, "released", known?.fence);
      } else if (known?.held !== false) {
        this.#audit.claim("released", ref, { source: known?.source, ...asker }, known?.fence);
      }
    }
    return released;
  }

  /** What the store says. Whoever passes it on shows each principal what it may see of it. */
  look(query: LookQuery): Promise<LookPage> {
    return this.#ask("look", () => this.store.look(query));
  }

  onGrant(owner: string, client: Client, listener: GrantListener): Unsubscribe {
    return this.#owners.listen(owner, client, listener);
  }

  #subscribe(owner: string, listener: GrantListener): Unsubscribe {
    return this.store.onGrant(owner, (refs) => {
      const nowMs = performance.now();
      for (const ref of refs) this.#ledger.granted(ref, nowMs);
      this.#metrics.pushes += refs.length;
      listener(refs);
    });
  }

  /** Answers that come are measured. An error that is not Holdfast's stays here as a cause: it may name paths, hosts and users. */
  async #ask<T>(verb: keyof Metrics["addStore"], ask: () => Promise<T>): Promise<T> {
    const startMs = performance.now();
    try {
      const answer = await ask();
      this.#metrics.addStore[verb](performance.now() - startMs);
      return answer;
    } catch (error) {
      if (error instanceof HoldfastError) throw error;
      throw new HoldfastError("STORE_FAILURE", failureOf(error).message, { cause: error });
    }
  }

  /** Whether the queue is full for it, so that it may only try. Throws where it may not even do that. */
  #admit(request: ClaimRequest, client: Client): boolean {
    const { maxKeyBytes, maxInfoBytes, maxClaims, maxWaiters } = this.#limits;
    if (request.key === HEALTH_KEY) throw reservedError();
    checkBytes("key", request.key, maxKeyBytes, request.key);
    checkBytes("info", request.info, maxInfoBytes, request.key);
    const refusal = this.#ttlRefusal(request, request.limit);
    if (refusal !== undefined) throw refusal;
    if (!this.store.counts && request.limit !== 1 && request.limit !== UNLIMITED)
      throw this.#cannotCount(request);
    // What it has already it may ask for again.
    if (client.claims >= maxClaims && !this.#ledger.knows(request)) {
      throw new HoldfastError(
        "UNAUTHORIZED",
        `${client.name} has ${client.claims} claims, and the server allows ${maxClaims} (limits.maxClaims). Release some first.`,
        { key: request.key },
      );
    }
    return request.wait && this.#ledger.waitersOf(request.key) >= maxWaiters && !this.#ledger.knows(request);
  }

  /** The limit is on leases. Notes of schedules stay for a day. */
  #ttlRefusal(ref: RenewRef, limit = UNLIMITED): HoldfastError | undefined {
    const { maxTtlMs } = this.#limits;
    const { ttlMs = 0, key } = ref;
    if (ttlMs <= maxTtlMs || (limit === UNLIMITED && isScheduleNote(ref))) return undefined;
    return invalid(`ttlMs must be at most ${maxTtlMs} on this server (limits.maxTtlMs), not ${ttlMs}.`, key);
  }

  #cannotCount({ key }: ClaimRequest): HoldfastError {
    return new HoldfastError(
      "UNSUPPORTED",
      `The ${this.store.name} store does not count permits, so "${key}" cannot be a semaphore there. Use another mode.`,
      { key },
    );
  }

  #refused(answer: Extract<AcquireAnswer, { state: "refused" }>): AcquireAnswer {
    countUp(this.#metrics.refusals, answer.reason);
    return answer;
  }
}

function reservedError(): HoldfastError {
  return invalid(
    `The key "${HEALTH_KEY}" is the server's own, with which it sees whether its store grants locks. Choose another key.`,
    HEALTH_KEY,
  );
}

const isGone = (answer: RenewAnswer | undefined) => answer?.state === "gone";
const isNot = (released: boolean | undefined) => released !== true;

/**
 * Asks about the claims of a principal. A reference without a token is an administrator's: it means a claim of its own with that id or, where
 * there is none, the claim that the store has under that id.
 */
async function ownFirst<R extends ClaimRef, A>(
  refs: readonly R[],
  owner: Owner,
  isMiss: (answer: A | undefined) => boolean,
  ask: (refs: readonly R[]) => Promise<readonly A[]>,
): Promise<readonly A[]> {
  if (owner.prefix === "") return ask(refs);
  const answers = [...(await ask(refs.map((ref) => stored(ref, owner))))];
  const others = refs.flatMap((ref, index) =>
    ref.token === undefined && isMiss(answers[index]) ? [index] : [],
  );
  if (others.length === 0) return answers;
  const more = await ask(others.map((index) => refs[index] as R));
  for (const [nth, index] of others.entries()) answers[index] = more[nth] as A;
  return answers;
}

function checkBytes(name: string, text: string, max: number, key: string): void {
  if (text.length * 3 <= max || Buffer.byteLength(text) <= max) return;
  throw invalid(`${name} must be at most ${max} bytes of UTF-8 on this server.`, key.slice(0, 40));
}
