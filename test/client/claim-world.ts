/**
 * One claim between its events, without a runner: a recorder notes the effects down, and a small world plays the network and the
 * store. The store is the record machine itself, so its answers are right, but late, lost or repeated as the test chooses.
 */
import { HoldfastError, type RenewRef } from "holdfast";
import { ClaimState, dueMs, type Effects, type Live, type Loss, type Phase } from "../../src/client/claim.ts";
import * as answers from "../../src/client/claim-answers.ts";
import * as events from "../../src/client/claim-events.ts";
import type { LockSettings } from "../../src/client/options.ts";
import { acquire, emptyRecord, findClaim, release, renew, type Turn } from "../../src/record/record.ts";
import type { AcquireAnswer, ClaimRequest, RenewAnswer } from "../../src/store/index.ts";

export const TTL_MS = 30;

const base: LockSettings = {
  ttlMs: TTL_MS,
  renew: true,
  renewEveryMs: TTL_MS / 3,
  keepProcessAlive: false,
  reacquire: false,
  maxHoldMs: Number.POSITIVE_INFINITY,
  reentrant: false,
  onUnavailable: "throw",
};

export function requestOf(id: string, more: Partial<ClaimRequest> = {}): ClaimRequest {
  const token = `token of ${id}`;
  const rest = { weight: 1, limit: 1, priority: 0, ttlMs: TTL_MS, wait: true, info: "", application: "" };
  return { key: "k", id, token, owner: "client", ...rest, ...more };
}

export interface RecorderOptions {
  readonly settings?: Partial<LockSettings>;
  readonly request?: Partial<ClaimRequest>;
  readonly namedByCaller?: boolean;
}

/** A claim that notes its effects down, each as its name and what it was called with. */
export class Recorder extends ClaimState implements Effects {
  effects: (readonly [name: string, ...values: unknown[]])[] = [];
  #ids = 0;

  constructor({ settings, request, namedByCaller = false }: RecorderOptions = {}) {
    const all = { ...base, ...settings };
    super(requestOf("a", request), all, { clockDrift: 0, requestTimeoutMs: 90 }, namedByCaller);
  }

  /** The claim as the machine sees it, in a phase that the test knows. */
  live<L extends Live = Live>(): L {
    return this as unknown as L;
  }

  /** The effects since the last call. */
  take(): (readonly [name: string, ...values: unknown[]])[] {
    const taken = this.effects;
    this.effects = [];
    return taken;
  }

  #note(name: string, ...values: unknown[]): void {
    this.effects.push([name, ...values]);
  }

  sendAcquire = () => this.#note("send acquire");
  sendRenewal = () => this.#note("send renewal");
  sendRelease = () => this.#note("send release");
  discard = (request: ClaimRequest) => this.#note("discard", request);
  moved = (from: Phase, to: Phase) => this.#note("moved", from, to);
  proven = (untilMs: number) => this.#note("proven", untilMs);
  changed = () => this.#note("changed");
  granted = (_nowMs: number, again: boolean) => this.#note("granted", again);
  contended = () => this.#note("contended");
  failed = (error: HoldfastError, again: boolean) => this.#note("failed", error.code, again);
  givesUp = (why: string) => this.#note("gives up", why);
  departed = (wasThere: boolean) => this.#note("departed", wasThere);
  departFailed = (error: HoldfastError) => this.#note("depart failed", error.code);
  waits = () => this.#note("waits");
  asksAgain = () => this.#note("asks again");
  lost = (wasHeld: boolean, ends: boolean) => this.#note("lost", this.loss?.reason, wasHeld, ends);
  renewed = (leftMs: number) => this.#note("renewed", leftMs);
  renewalFailed = (error: HoldfastError) => this.#note("renewal failed", error.code);
  renewalUnanswered = () => this.#note("renewal unanswered");
  requestFailed = (error: HoldfastError) => this.#note("request failed", error.code);

  extended = (ticket: number, failure: HoldfastError | Loss | undefined) =>
    this.#note("extended", ticket, failure instanceof HoldfastError ? failure.code : failure?.reason);

  unavailable(bound: string, isOutage: boolean): HoldfastError {
    this.#note("unavailable", bound, isOutage);
    return new HoldfastError("STORE_UNAVAILABLE", bound, { key: "k" });
  }

  newIds(): { id: string; token: string } {
    const id = `a${++this.#ids}`;
    return { id, token: `token of ${id}` };
  }
}

type Sent =
  | { readonly verb: "acquire"; readonly ref: ClaimRequest; readonly sentMs: number }
  | { readonly verb: "renew"; readonly ref: RenewRef; readonly sentMs: number }
  | { readonly verb: "release" | "discard"; readonly ref: ClaimRequest; readonly sentMs: number };

interface Answered {
  readonly to: Sent;
  readonly answer: AcquireAnswer | RenewAnswer | boolean;
}

/** The steps that a test can choose from. `nth` picks one of the messages under way. */
export type Step =
  | { readonly do: "pass"; readonly ms: number }
  | {
      readonly do: "arrive" | "repeat" | "drop" | "fail" | "refuse" | "answer" | "forget" | "push";
      readonly nth: number;
    }
  | { readonly do: "rival" | "force" }
  | { readonly do: "release" | "cancel" | "detach" | "extend" | "pause" | "resume" | "close" | "abandon" };

const settlements = ["granted", "contended", "failed", "gives up"];

/** Takes out one of those that are there. */
function take<T>(messages: T[], nth: number): T | undefined {
  return messages.splice(nth % Math.max(1, messages.length), 1)[0];
}

export class ClaimWorld {
  nowMs = 100;
  readonly claim: Recorder;
  readonly record = emptyRecord();
  requests: Sent[] = [];
  replies: Answered[] = [];
  /** Fences of pushed grants on their way to the client. */
  pushes: { id: string; fence: bigint }[] = [];
  /** How often the caller was settled. */
  settled = 0;
  /** Leases that were ended in the store by force, by fence. */
  readonly #forced = new Set<bigint>();
  #stamp = 0n;
  #rivals = 0;
  #rival: ClaimRequest | undefined;
  #tickets = 0;
  readonly #openTickets = new Set<number>();
  #fence = 0n;
  #provenUntilMs = 0;

  constructor(options: RecorderOptions = {}, waitMs = Number.POSITIVE_INFINITY) {
    this.claim = new Recorder(options);
    events.asked(this.claim.live(), waitMs, this.nowMs);
    this.#settle();
  }

  /** Plays one step, and checks what must always hold. Returns whether the step meant anything. */
  play(step: Step): boolean {
    const wasEnded = this.claim.phase === "ended";
    const meant = this.#play(step);
    this.#settle(wasEnded);
    this.#check();
    return meant;
  }

  /** The whole state as text. */
  describe(): string {
    const { settings: _settings, client: _client, ...claim } = this.claim;
    const state = [claim, this.record, this.requests, this.replies, this.pushes, this.nowMs, this.#rival?.id];
    return JSON.stringify(state, (_, value) => (typeof value === "bigint" ? `${value}n` : value));
  }

  #play(step: Step): boolean {
    const claim = this.claim.live();
    switch (step.do) {
      case "pass":
        this.nowMs += step.ms;
        return true;
      case "arrive":
      case "repeat": {
        const sent = this.requests[step.nth % this.requests.length];
        if (sent === undefined) return false;
        if (step.do === "arrive") take(this.requests, step.nth);
        this.#arrive(sent);
        return true;
      }
      case "drop":
        return take(this.requests, step.nth) !== undefined;
      case "fail":
      case "refuse": {
        const sent = take(this.requests, step.nth);
        if (sent !== undefined) this.#fail(sent, step.do === "fail");
        return sent !== undefined;
      }
      case "answer": {
        const reply = take(this.replies, step.nth);
        if (reply !== undefined) this.#answer(reply);
        return reply !== undefined;
      }
      case "forget":
        return take(this.replies, step.nth) !== undefined;
      case "push": {
        const push = take(this.pushes, step.nth);
        if (push === undefined) return false;
        this.#wake();
        const isKnown = claim.phase === "waiting" && claim.request.id === push.id;
        if (isKnown && !answers.pushed(claim, push.fence, this.nowMs)) this.claim.sendRenewal();
        return true;
      }
      case "rival":
        this.#playRival();
        return true;
      case "force": {
        const held = findClaim(this.record, claim.request.id);
        if (held === undefined) return false;
        this.#forced.add(held.fence);
        release(this.record, { key: "k", id: held.id }, this.#turn());
        return true;
      }
      default:
        return this.#call(step.do);
    }
  }

  /** A call of the application. The runner looks at the clock first and asks the machine only if the phase allows it. */
  #call(call: string): boolean {
    const claim = this.claim.live();
    events.looked(claim, undefined, this.nowMs);
    const isOver = claim.phase === "leaving" || claim.phase === "ended";
    if (isOver) return false;
    const isAsked = claim.fence !== 0n;
    if (call === "cancel" && !isAsked) events.cancelled(claim, "signal", "reason", this.nowMs);
    else if (call === "detach") {
      events.detached(claim);
      if (!isAsked) this.settled++;
    } else if (call === "close") events.closed(claim, this.nowMs);
    else if (!isAsked) return false;
    else if (call === "release") events.released(claim, this.nowMs);
    else if (call === "abandon") events.abandoned(claim, this.nowMs);
    else if (call === "pause" || call === "resume") {
      if (claim.renews === (call === "resume")) return false;
      events.renewalSwitched(claim, call === "resume");
    } else if (call === "extend" && claim.phase === "held") {
      this.#openTickets.add(++this.#tickets);
      events.extendAsked(claim, 2 * TTL_MS, this.#tickets, this.nowMs);
    } else return false;
    return true;
  }

  #playRival(): void {
    const rival = this.#rival;
    if (rival === undefined) {
      this.#rival = requestOf(`r${++this.#rivals}`, { owner: "rival", ttlMs: 10_000 });
      acquire(this.record, this.#rival, 100, this.#turn());
    } else {
      this.#rival = undefined;
      release(this.record, rival, this.#turn());
    }
  }

  #arrive(sent: Sent): void {
    const turn = this.#turn();
    const { record } = this;
    if (sent.verb === "acquire")
      this.replies.push({ to: sent, answer: acquire(record, sent.ref, 100, turn) });
    else if (sent.verb === "renew") this.replies.push({ to: sent, answer: renew(record, sent.ref, turn) });
    else {
      const answer = release(record, sent.ref, turn);
      if (sent.verb === "release") this.replies.push({ to: sent, answer });
    }
  }

  #answer({ to, answer }: Answered): void {
    this.#wake();
    const claim = this.claim.live();
    if (to.verb === "acquire") {
      answers.acquireAnswered(claim, to.ref, to.sentMs, this.nowMs, answer as AcquireAnswer);
    } else if (to.verb === "renew") {
      answers.renewalAnswered(claim, to.ref, to.sentMs, this.nowMs, answer as RenewAnswer);
    } else answers.releaseAnswered(claim, answer as boolean);
  }

  #fail(sent: Sent, retryable: boolean): void {
    this.#wake();
    const claim = this.claim.live();
    const error = new HoldfastError(retryable ? "STORE_UNAVAILABLE" : "STORE_FAILURE", "failed", {
      key: "k",
    });
    if (sent.verb === "acquire") answers.acquireFailed(claim, sent.ref, error, this.nowMs);
    else if (sent.verb === "renew") answers.renewalFailed(claim, sent.ref, sent.sentMs, error, this.nowMs);
    else if (sent.verb === "release") answers.releaseFailed(claim, error, this.nowMs);
  }

  #turn(): Turn {
    this.#stamp += 1n;
    const granted = {
      push: ({ id, owner, fence }: { id: string; owner: string; fence: bigint }) => {
        if (owner === "client") this.pushes.push({ id, fence });
      },
    };
    return { nowMs: this.nowMs, expiredMs: this.nowMs, stamp: this.#stamp, granted };
  }

  /** Does what is due by now, as the heartbeat does before each event. */
  #wake(): void {
    const claim = this.claim.live();
    while (claim.phase !== "ended" && dueMs(claim) <= this.nowMs) {
      if (events.fellDue(claim, undefined, this.nowMs)) this.claim.sendRenewal();
      this.#carryOut(false);
    }
  }

  #settle(wasEnded = false): void {
    this.#carryOut(wasEnded);
    this.#wake();
  }

  #carryOut(wasEnded: boolean): void {
    const { claim, nowMs: sentMs } = this;
    for (const [name, ...values] of claim.take()) {
      if (settlements.includes(name) && values.at(-1) !== true) this.settled++;
      if (name === "extended" && !this.#openTickets.delete(values[0] as number)) {
        throw new Error("a call of extend was settled twice");
      }
      if (name === "discard") this.requests.push({ verb: "discard", ref: values[0] as ClaimRequest, sentMs });
      else if (wasEnded && name !== "request failed") throw new Error(`"${name}" after the end`);
      if (name === "send acquire") {
        this.requests.push({ verb: "acquire", ref: claim.request, sentMs: claim.latestAskMs });
      } else if (name === "send release") this.requests.push({ verb: "release", ref: claim.request, sentMs });
      else if (name === "send renewal" && (claim.phase === "held" || claim.phase === "waiting")) {
        this.requests.push({ verb: "renew", ref: answers.renewalSent(claim.live(), sentMs), sentMs });
      }
    }
  }

  #check(): void {
    const { claim, nowMs } = this;
    if (claim.fence < this.#fence) throw new Error("the fence has fallen");
    const isSameLease = claim.fence === this.#fence;
    this.#fence = claim.fence;
    const isFirst = claim.fence === 0n;
    const expected = claim.phase === "ended" || claim.phase === "leaving" || !isFirst ? 1 : 0;
    if (this.settled !== expected) throw new Error(`the caller was settled ${this.settled} times`);
    if (claim.phase !== "ended" && dueMs(claim.live()) === Number.POSITIVE_INFINITY) {
      throw new Error(`nothing is due for a claim that is ${claim.phase}`);
    }
    if (claim.phase !== "held" && this.#openTickets.size > 0) throw new Error("a call of extend stays open");
    if (claim.phase !== "held") return;
    if (nowMs >= claim.provenUntilMs) throw new Error("held beyond what is proven");
    if (nowMs >= (claim.holdUntilMs ?? Number.POSITIVE_INFINITY)) throw new Error("held beyond maxHoldMs");
    if (isSameLease && claim.provenUntilMs < this.#provenUntilMs) throw new Error("a proof was taken back");
    this.#provenUntilMs = claim.provenUntilMs;
    if (this.#forced.has(claim.fence)) return;
    const own = findClaim(this.record, claim.request.id);
    if (own?.fence !== claim.fence || own.token !== claim.request.token || own.expiresAtMs <= nowMs) {
      throw new Error("held, but not in the store");
    }
  }
}
