/**
 * The one loop of a client: it keeps all of the client's claims alive and notices when their time is up.
 *
 * Every claim has one next moment at which something is due: a heartbeat, the end of a wait, the deadline of a lease,
 * a retry. They stand in one agenda behind one timer, so a hundred thousand leases cost one timer, and those due about
 * now travel in one call.
 */
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Clock, Timer } from "../platform/index.ts";
import { type Deferred, deferred } from "../platform/index.ts";
import { IdIndex } from "../record/index.ts";
import type { ClaimRef, ClaimRequest, GrantRef, RenewRef, Store, Unsubscribe } from "../store/index.ts";
import { batches, callStore, checkOwner, HoldfastError, heartbeatCalls } from "../store/index.ts";
import { Agenda, UNTRACKED } from "./agenda.ts";
import { outsideBodies } from "./body.ts";
import { idInUseError, unavailableError } from "./claim-errors.ts";
import type { ClaimRunner } from "./claim-runner.ts";
import type { ClientSettings, HoldfastWarning } from "./options.ts";
import { Report } from "./report.ts";
import type { StandbyHeartbeat } from "./standby.ts";
import type { LocksStats } from "./stats.ts";

/** How many pushes for unknown claims are remembered. Forgetting one costs at most the time to the next heartbeat. */
const MAX_EARLY_GRANTS = 1_000;

/** The furthest ahead a timer is set. Node turns a longer one than 24.8 days into none at all. */
const MAX_TIMER_MS = 3_600_000;

export class Heartbeat {
  readonly store: Store;
  readonly clock: Clock;
  readonly settings: ClientSettings;
  /** Looks after held claims when this one does not get to them. */
  readonly standby: StandbyHeartbeat | undefined;
  /** Who this client is to the store: unique, and telling for people. */
  readonly owner = checkOwner(`${hostname()}:${process.pid}:${randomUUID().slice(0, 8)}`);
  readonly report: Report;
  readonly stats: LocksStats;
  readonly #claims = new Agenda<ClaimRunner>();
  /** The claims that wait in a queue: grants are pushed for these. */
  readonly #waiting = new IdIndex<ClaimRunner>();
  /** Claims that a grant was pushed for before anything was known of their waiting, by name. */
  readonly #earlyGrants = new Set<string>();
  /** Names of open claims whose id the caller chose. */
  readonly #reserved = new Set<string>();
  readonly #background = new Set<Promise<unknown>>();
  readonly #unsubscribe: Unsubscribe;
  /** What has to know at once that nothing new may begin. */
  readonly #onClosing = new Set<() => void>();
  #discards: ClaimRef[] = [];
  #pending = 0;
  #closed: Promise<void> | undefined;
  #graceUntilMs = Number.POSITIVE_INFINITY;
  /** Resolves when no claim is open any more, while closing waits for that. */
  #idle: Deferred<void> | undefined;
  #timer: Timer | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;

  constructor(store: Store, settings: ClientSettings) {
    this.store = store;
    this.clock = settings.clock;
    this.settings = settings;
    this.report = new Report(store.name, this.owner, settings);
    this.stats = this.report.stats;
    // Its warnings are counted and published like any other of this client.
    const onWarning = (warning: HoldfastWarning) => this.report.warn(warning);
    this.standby = settings.thread?.start({ ...settings, onWarning });
    this.#unsubscribe = store.onGrant(this.owner, (refs) => this.#onGrant(refs));
  }

  /** Takes a claim in, or takes note that its `dueMs` has changed. */
  schedule(claim: ClaimRunner): void {
    if (this.#claims.plan(claim)) this.#arm();
  }

  untrack(claim: ClaimRunner): void {
    this.#claims.remove(claim);
    if (this.#claims.isEmpty) this.#idle?.resolve();
  }

  /** Reserves an id that the caller chose: two open claims of one id on one key would be one claim in the store. */
  reserve(request: ClaimRequest): void {
    const name = claimName(request);
    if (this.#reserved.has(name)) throw idInUseError(request.key, request.id);
    this.#reserved.add(name);
  }

  unreserve(request: ClaimRequest): void {
    this.#reserved.delete(claimName(request));
  }

  /** From now on a grant of this claim may be pushed. Whether one was, before the store's answer arrived. */
  expectGrant(claim: ClaimRunner): boolean {
    this.#waiting.add(claim);
    return this.#earlyGrants.size > 0 && this.#earlyGrants.delete(claimName(claim.request));
  }

  expectNoGrant(claim: ClaimRunner): void {
    this.#waiting.remove(claim);
  }

  /** While somebody waits, the process must not end for want of anything else to do. */
  countPending(change: 1 | -1): void {
    this.#pending += change;
    this.#timer?.keepAlive(this.#pending > 0);
  }

  /**
   * Does what is overdue before anything else happens, and tells the time. Whatever wakes this client calls it first,
   * so that after a blocked event loop a lost lease is told before an answer or a push is acted upon.
   */
  wake(): number {
    const nowMs = this.clock.monotonicMs();
    const { next } = this.#claims;
    if (next !== undefined && next.wakeMs <= nowMs) outsideBodies(() => this.#run(nowMs));
    return nowMs;
  }

  /** Removes a claim that nobody waits for any more. Left to the ttl when the store does not answer. */
  discard(ref: ClaimRef): void {
    this.#discards.push(ref);
    if (this.#discards.length === 1) this.inBackground(this.#sendDiscards());
  }

  /** Remembers work that nobody awaits, so that `close` can. */
  inBackground(work: Promise<unknown>): void {
    this.#background.add(work);
    void work.finally(() => this.#background.delete(work));
  }

  /** Sends a heartbeat for each claim, right now. */
  renew(claims: readonly ClaimRunner[], nowMs: number): void {
    for (const batch of batches(claims)) this.#sendRenewals(batch, nowMs);
  }

  /** Whether nothing new may begin. */
  get closing(): boolean {
    return this.#closed !== undefined;
  }

  /**
   * Lets what is open end by itself for `graceMs`, cuts off the rest, and lets go of the store. Called again, it can
   * only be in more of a hurry.
   */
  close(graceMs: number): Promise<void> {
    this.#graceUntilMs = Math.min(this.#graceUntilMs, this.clock.monotonicMs() + graceMs);
    this.#idle?.resolve();
    if (this.#closed === undefined) {
      this.#closed = this.#close();
      for (const listener of [...this.#onClosing]) listener();
    }
    return this.#closed;
  }

  /** Calls back when closing begins, before open work is given its grace. */
  onClosing(listener: () => void): Unsubscribe {
    this.#onClosing.add(listener);
    return () => void this.#onClosing.delete(listener);
  }

  async #close(): Promise<void> {
    await this.#grace();
    await Promise.all(this.#claims.all().map((claim) => this.#shutDown(claim)));
    await this.#drain();
    this.#unsubscribe();
    this.#timer?.cancel();
    this.#timer = undefined;
    this.report.closed();
    await this.standby?.close();
    if (this.settings.closeStore) await this.store.close();
  }

  async #grace(): Promise<void> {
    while (!this.#claims.isEmpty) {
      const leftMs = this.#graceUntilMs - this.clock.monotonicMs();
      if (leftMs <= 0) return;
      this.#idle = deferred();
      const timer = this.clock.setTimer(Math.min(leftMs, MAX_TIMER_MS), this.#idle.resolve);
      timer.keepAlive(true);
      await this.#idle.promise;
      timer.cancel();
    }
  }

  /** What the store answers, or `STORE_UNAVAILABLE` once it has kept silent for too long. */
  async answer<T>(call: () => Promise<T>, key: string): Promise<T> {
    const silence = deferred<never>();
    const { requestTimeoutMs } = this.settings;
    const timer = this.clock.setTimer(requestTimeoutMs, () =>
      silence.reject(
        unavailableError(this.store.name, key, `requestTimeoutMs ${requestTimeoutMs}`, undefined),
      ),
    );
    timer.keepAlive(true);
    try {
      const answer = await Promise.race([callStore(call), silence.promise]);
      this.report.answered();
      return answer;
    } catch (error) {
      this.report.requestFailed(HoldfastError.from(error, key));
      throw error;
    } finally {
      timer.cancel();
    }
  }

  /** Waits for work that nobody awaits, but not for a store that has fallen silent: ttls end what is left there. */
  async #drain(): Promise<void> {
    const silence = deferred<void>();
    let silent = false;
    const timer = this.clock.setTimer(this.settings.requestTimeoutMs, () => {
      silent = true;
      silence.resolve();
    });
    timer.keepAlive(true);
    while (this.#background.size > 0 && !silent) {
      await Promise.race([Promise.all(this.#background), silence.promise]);
    }
    timer.cancel();
  }

  async #shutDown(claim: ClaimRunner): Promise<void> {
    const { key } = claim.request;
    try {
      await claim.shutDown();
    } catch (cause) {
      const message = `"${key}" could not be released on close. The lease ends with its ttl.`;
      this.report.warn({ code: "RELEASE_FAILED", message, key, cause });
    }
  }

  #sendRenewals(claims: readonly ClaimRunner[], sentMs: number): void {
    this.stats.renewals += claims.length;
    const refs = claims.map((claim) => claim.heartbeatSent(sentMs));
    callStore(() => this.store.renew(refs)).then(
      (answers) => {
        const nowMs = this.wake();
        if (!this.stats.storeAvailable && answers?.some((answer) => answer?.state !== "failed"))
          this.report.answered();
        claims.forEach((claim, index) => {
          claim.heartbeatAnswered(refs[index] as RenewRef, sentMs, nowMs, answers?.[index]);
        });
      },
      (error: unknown) => {
        const nowMs = this.wake();
        claims.forEach((claim, index) => {
          claim.heartbeatFailed(refs[index] as RenewRef, sentMs, nowMs, error);
        });
      },
    );
  }

  async #sendDiscards(): Promise<void> {
    await undefined;
    const discards = this.#discards;
    this.#discards = [];
    // Nobody is told: the claims are nobody's, and the ttl ends them if this does not.
    await Promise.all(
      batches(discards).map((refs) =>
        callStore(() => this.store.release(refs)).catch((error: unknown) =>
          this.report.requestFailed(HoldfastError.from(error)),
        ),
      ),
    );
  }

  #onGrant(refs: readonly GrantRef[]): void {
    const nowMs = this.wake();
    const unproven: ClaimRunner[] = [];
    for (const ref of refs) {
      const claim = this.#waiting.find(ref.id, ({ request }) => request.key === ref.key);
      if (claim === undefined) this.#rememberEarly(claimName(ref));
      else if (!claim.pushed(ref.fence, nowMs)) unproven.push(claim);
    }
    // Whoever was told of a grant meanwhile may have ended some of them.
    this.renew(
      unproven.filter((claim) => claim.alive),
      nowMs,
    );
  }

  /** A push can overtake the answer that says "waiting". Most such are for claims that are over, so few are kept. */
  #rememberEarly(name: string): void {
    if (this.#earlyGrants.size >= MAX_EARLY_GRANTS) this.#earlyGrants.clear();
    this.#earlyGrants.add(name);
  }

  #run(nowMs: number): void {
    const renewals: ClaimRunner[] = [];
    // The agenda is read anew each time: an abort listener of the application may have acquired or released anything.
    for (let next = this.#claims.next; next !== undefined; next = this.#claims.next) {
      if (next.wakeMs - next.earlyMs > nowMs) break;
      if (next.dueMs - next.earlyMs <= nowMs && next.fallDue(nowMs)) renewals.push(next);
      if (next.slot !== UNTRACKED && next.wakeMs < next.dueMs) this.#claims.postpone(next);
    }
    const alive = renewals.filter((claim) => claim.alive);
    for (const call of heartbeatCalls(alive)) this.#sendRenewals(call, nowMs);
  }

  #arm(): void {
    const { next } = this.#claims;
    if (next === undefined || next.wakeMs >= this.#timerAtMs) return;
    this.#timer?.cancel();
    const nowMs = this.clock.monotonicMs();
    const delayMs = Math.min(Math.max(0, next.wakeMs - nowMs), MAX_TIMER_MS);
    this.#timerAtMs = nowMs + delayMs;
    this.#timer = this.clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      this.#timerAtMs = Number.POSITIVE_INFINITY;
      this.wake();
      this.#arm();
    });
    this.#timer.keepAlive(this.#pending > 0);
  }
}

/** The name of a claim within a client. Neither part can contain a line break. */
function claimName(ref: ClaimRef): string {
  return `${ref.id}\n${ref.key}`;
}
