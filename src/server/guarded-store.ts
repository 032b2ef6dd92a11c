/** The store as clients of the server use it: each with its own claims, within the server's limits, and measured. */
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
  unsoundError,
} from "../store/index.ts";
import type { Audit } from "./audit.ts";
import type { Client, Requester } from "./callers.ts";
import type { ClaimRegistry } from "./claim-registry.ts";
import { GrantSubscriptions } from "./grant-subscriptions.ts";
import { HEALTH_KEY } from "./health.ts";
import type { ResolvedLimits } from "./limits.ts";
import { countUp, type Metrics } from "./metrics.ts";
import { type Owner, stored } from "./ownership.ts";

export class GuardedStore {
  readonly store: Store;
  readonly #limits: ResolvedLimits;
  readonly #registry: ClaimRegistry;
  readonly #metrics: Metrics;
  readonly #audit: Audit;
  readonly #subscriptions = new GrantSubscriptions((owner, listener) => this.#subscribe(owner, listener));

  constructor(store: Store, limits: ResolvedLimits, registry: ClaimRegistry, metrics: Metrics, audit: Audit) {
    this.store = store;
    this.#limits = limits;
    this.#registry = registry;
    this.#metrics = metrics;
    this.#audit = audit;
  }

  async acquire(asked: ClaimRequest, requester: Requester): Promise<AcquireAnswer> {
    const request = stored(asked, requester.client);
    this.#check(request, requester.client);
    const isFull = this.#isQueueFull(request);
    const answer = await this.#measured("acquire", () =>
      this.store.acquire(isFull ? { ...request, wait: false } : request),
    );
    const nowMs = performance.now();
    if (answer.state === "held") this.#registry.held(request, requester, nowMs, answer);
    else if (answer.state === "waiting")
      this.#registry.waiting(request, requester, nowMs, answer.expiresInMs);
    else {
      const reason = isFull && answer.reason === "contended" ? "queue-full" : answer.reason;
      countUp(this.#metrics.refusals, reason);
      return { state: "refused", reason };
    }
    return answer;
  }

  /**
   * Renews the claims that may be renewed. A refusal or a failure of one claim does not cost the others their leases, so each
   * has an answer of its own. `refusalOf` returns the reason not to renew a claim.
   */
  async renew(
    refs: readonly RenewRef[],
    requester: Requester,
    refusalOf?: (ref: RenewRef) => HoldfastError | undefined,
  ): Promise<readonly RenewAnswer[]> {
    const renew = (permitted: readonly RenewRef[]) =>
      ownFirst(permitted, requester.client, isGone, (named) => this.#renew(named, requester));
    const refusals = refs.map((ref) => refusalOf?.(ref) ?? this.#ttlRefusal(ref));
    if (refs.length === 1 && refusals[0] !== undefined) throw refusals[0];
    const permitted = refs.filter((_, index) => refusals[index] === undefined);
    if (permitted.length === refs.length) return renew(refs);
    const failed = (cause: unknown) =>
      permitted.map(({ key }): RenewAnswer => ({ state: "failed", error: HoldfastError.from(cause, key) }));
    const answers = permitted.length === 0 ? [] : await renew(permitted).catch(failed);
    let next = 0;
    return refs.map(({ key }, index): RenewAnswer => {
      const error = refusals[index];
      if (error !== undefined) return { state: "failed", error };
      return answers[next++] ?? { state: "failed", error: unsoundError(key) };
    });
  }

  async #renew(refs: readonly RenewRef[], requester: Requester): Promise<readonly RenewAnswer[]> {
    const answers = await this.#measured("renew", () => this.store.renew(refs));
    const nowMs = performance.now();
    for (const [index, ref] of refs.entries()) {
      const answer = answers[index];
      if (answer?.state === "held") this.#registry.held(ref, requester, nowMs, answer);
      else if (answer?.state === "waiting") this.#registry.waiting(ref, requester, nowMs, answer.expiresInMs);
      else if (answer?.state === "gone") this.#registry.gone(ref);
      if (answer?.state === "held" || answer?.state === "waiting") this.#metrics.renewals++;
    }
    return answers;
  }

  async release(refs: readonly ClaimRef[], requester: Requester): Promise<readonly boolean[]> {
    const auditForced = (outcome: "not-found" | "failed", answers: readonly boolean[] = []) => {
      for (const [index, ref] of refs.entries())
        if (ref.token === undefined && answers[index] !== true) this.#audit.forced(ref, requester, outcome);
    };
    try {
      const answers = await ownFirst(refs, requester.client, isNot, (named) =>
        this.#release(named, requester),
      );
      auditForced("not-found", answers);
      return answers;
    } catch (error) {
      auditForced("failed");
      throw error;
    }
  }

  async #release(refs: readonly ClaimRef[], requester: Requester): Promise<readonly boolean[]> {
    const released = await this.#measured("release", () => this.store.release(refs));
    const nowMs = performance.now();
    for (const [index, ref] of refs.entries()) {
      if (released[index] !== true) continue;
      this.#metrics.releases++;
      const claim = this.#registry.released(ref, nowMs);
      if (ref.token === undefined) {
        this.#metrics.forceReleases++;
        this.#audit.forced(ref, requester, "released", claim?.fence);
      } else if (this.#audit.logsClaims && claim?.held !== false) {
        this.#audit.claim("released", ref, { peer: claim?.peer, ...requester }, claim?.fence);
      }
    }
    return released;
  }

  /** The answer of the store, with the ids of all principals: `shownTo` hides them. */
  look(query: LookQuery): Promise<LookPage> {
    return this.#measured("look", () => this.store.look(query));
  }

  onGrant(owner: string, principal: Owner, listener: GrantListener): Unsubscribe {
    return this.#subscriptions.listen(owner, principal, listener);
  }

  /** Ends all subscriptions. The store stays open. */
  close(): void {
    this.#subscriptions.close();
  }

  #subscribe(owner: string, listener: GrantListener): Unsubscribe {
    return this.store.onGrant(owner, (refs) => {
      const nowMs = performance.now();
      for (const ref of refs) this.#registry.granted(ref, nowMs);
      this.#metrics.pushes += refs.length;
      listener(refs);
    });
  }

  /** Measures answers. An error of a driver is only the cause of the new error: it may name paths, hosts and users. */
  async #measured<T>(verb: keyof Metrics["addStore"], ask: () => Promise<T>): Promise<T> {
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

  /** Throws if the request is outside the server's limits. A client at its limit of claims may still ask for those that it has. */
  #check(request: ClaimRequest, client: Client): void {
    const { maxKeyBytes, maxInfoBytes, maxClaims } = this.#limits;
    const { key } = request;
    if (key === HEALTH_KEY)
      throw invalid(`The key "${key}" is reserved for the server's health check. Choose another key.`, key);
    checkBytes("key", key, maxKeyBytes, key);
    checkBytes("info", request.info, maxInfoBytes, key);
    const refusal = this.#ttlRefusal(request, request.limit);
    if (refusal !== undefined) throw refusal;
    if (!this.store.counts && request.limit !== 1 && request.limit !== UNLIMITED) {
      const message = `The ${this.store.name} store does not count permits, so "${key}" cannot be a semaphore there. Use another mode.`;
      throw new HoldfastError("UNSUPPORTED", message, { key });
    }
    if (client.claims < maxClaims || this.#registry.has(request)) return;
    const message = `${client.name} has ${client.claims} claims, and the server allows ${maxClaims} (limits.maxClaims). Release some first.`;
    throw new HoldfastError("UNAUTHORIZED", message, { key });
  }

  #isQueueFull(request: ClaimRequest): boolean {
    const { maxWaiters } = this.#limits;
    const { wait, key } = request;
    return wait && this.#registry.waitersOf(key) >= maxWaiters && !this.#registry.has(request);
  }

  /** The limit is for leases. Schedule notes stay for a day. */
  #ttlRefusal(ref: RenewRef, limit = UNLIMITED): HoldfastError | undefined {
    const { maxTtlMs } = this.#limits;
    const { ttlMs = 0, key } = ref;
    if (ttlMs <= maxTtlMs || (limit === UNLIMITED && isScheduleNote(ref))) return undefined;
    return invalid(`ttlMs must be at most ${maxTtlMs} on this server (limits.maxTtlMs), not ${ttlMs}.`, key);
  }
}

const isGone = (answer: RenewAnswer | undefined) => answer?.state === "gone";
const isNot = (released: boolean | undefined) => released !== true;

/**
 * Asks about the claims of a principal. A reference without a token comes from an administrator. It names a claim of its own
 * with that id or, if there is none, the claim that the store has under that id.
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
