/** One leader among all clients that campaign for a name: whoever holds the mutex of that key. */

import type { Heartbeat, Lease } from "../../client/index.ts";
import {
  closedError,
  type HoldfastWarning,
  jsonable,
  KeyLock,
  resolveLockOptions,
  runBody,
} from "../../client/index.ts";
import { joinSignals, onAbort, pause } from "../../platform/index.ts";
import type { Durability } from "../../store/index.ts";
import {
  checkInfo,
  checkInteger,
  checkOptionNames,
  checkPriority,
  HoldfastError,
  invalid,
} from "../../store/index.ts";
import { type Leader, type LeaderView, LeaderWatch, type ObserveOptions } from "./leader-watch.ts";

/** Options of `locks.election`. */
export interface ElectionOptions {
  /** How long the office lives after its leader's last heartbeat, so how long a crash leaves it empty. Default 30,000. */
  readonly ttlMs?: number;
  /** How often observers look at the store, all of this client's together. 10 to 3,600,000. Default 1,000. */
  readonly observeMs?: number;
  /** How long a candidate waits after its body has ended or the store has failed, before it campaigns again. Default 1,000. */
  readonly retryMs?: number;
  /** The least durability that the store must have. Default: whatever the store has. */
  readonly durability?: Durability;
}

/** Options of one campaign. */
export interface LeadOptions {
  /** What others are told of this candidate when it leads: its address, for instance. Up to 1,024 bytes. Default: empty. */
  readonly info?: string;
  /** Of those who wait, the highest goes first. A leader is never interrupted. 0 to 65,535. Default 0. */
  readonly priority?: number;
  /** Resigns when it aborts. */
  readonly signal?: AbortSignal;
}

/** A term of office, for the body that leads. */
export interface Term {
  readonly name: string;
  /** Grows with every term of anybody. Pass it to whatever is written. */
  readonly fence: bigint;
  /** Aborts when the office is lost, when this candidate resigns, and when the client closes. */
  readonly signal: AbortSignal;
  /** Whether it is proven at this moment that nobody else leads. */
  readonly held: boolean;
  /** Throws LeaseLostError unless it is. */
  assertHeld(): void;
}

export type LeadBody = (term: Term) => unknown;

/** What this client's part in an election is. */
export interface ElectionStatus {
  readonly name: string;
  /** `"idle"`: it does not campaign. `"resigning"`: it waits for its body to end. */
  readonly state: "idle" | "campaigning" | "leading" | "resigning";
  /** Of the term of office, while there is one. */
  readonly fence?: bigint;
  /** Whether the store answered when this candidate last asked. */
  readonly available: boolean;
  readonly lastError?: HoldfastError;
}

export interface Election {
  readonly name: string;
  /**
   * Campaigns, runs the body while this client leads, and campaigns again when the body has ended or the office was lost, until
   * `resign` is called, the signal aborts or the client closes. Then it resolves, when the body has ended. The next term
   * never begins before the body of the last one has ended. What the body throws is a warning, `RUN_FAILED`.
   */
  lead(body: LeadBody, options?: LeadOptions): Promise<void>;
  /**
   * Ends this client's campaign. A waiting candidate is not elected any more; a leader's signal aborts, and the office is given
   * up when its body has ended. Resolves then, so a body must not await it.
   */
  resign(): Promise<void>;
  /** Who leads now. Null when nobody does; rejects with `STORE_UNAVAILABLE` when that cannot be known. */
  leader(): Promise<Leader | null>;
  /** Who leads now, then every change. Whoever is slow misses changes in between, never the latest. */
  observe(options?: ObserveOptions): AsyncGenerator<LeaderView, void, void>;
  status(): ElectionStatus;
}

interface Campaign {
  readonly controller: AbortController;
  readonly info: string;
  readonly priority: number;
  ended: Promise<void>;
}

export class LockElection implements Election {
  readonly name: string;
  readonly #heartbeat: Heartbeat;
  readonly #lock: KeyLock;
  readonly #watch: LeaderWatch;
  readonly #retryMs: number;
  /** The names that this client campaigns for. */
  readonly #campaigning: Set<string>;
  #campaign: Campaign | undefined;
  #lease: Lease | undefined;
  #lastError: HoldfastError | undefined;

  constructor(heartbeat: Heartbeat, name: string, options: ElectionOptions, campaigning: Set<string>) {
    checkOptionNames("election", options, { ttlMs: true, observeMs: true, retryMs: true, durability: true });
    const { ttlMs = 30_000, observeMs = 1_000, retryMs = 1_000, durability } = options;
    checkInteger("observeMs", observeMs, 10, 3_600_000);
    this.#retryMs = checkInteger("retryMs", retryMs, 0, 3_600_000);
    const lockOptions = { ttlMs, ...(durability === undefined ? {} : { durability }) };
    this.name = name;
    this.#heartbeat = heartbeat;
    this.#lock = new KeyLock(heartbeat, name, 1, resolveLockOptions(lockOptions, name, heartbeat.store));
    this.#watch = new LeaderWatch(heartbeat, name, observeMs);
    this.#campaigning = campaigning;
  }

  async lead(body: LeadBody, options: LeadOptions = {}): Promise<void> {
    if (this.#heartbeat.closing) throw closedError(this.name);
    if (typeof body !== "function") throw invalid("body must be a function.");
    checkOptionNames("lead", options, { info: true, priority: true, signal: true });
    const { info = "", priority = 0, signal } = options;
    if (signal !== undefined && !(signal instanceof AbortSignal)) {
      throw invalid("signal must be an AbortSignal; pass controller.signal, not the controller.");
    }
    const controller = new AbortController();
    const campaign: Campaign = {
      controller,
      info: checkInfo(info),
      priority: checkPriority(priority),
      ended: Promise.resolve(),
    };
    this.#lock.assertNoDeadlock();
    // Two candidates in one client would be two bodies side by side as soon as one of them does not heed its signal.
    if (this.#campaigning.has(this.name)) {
      throw invalid(`This client already campaigns for "${this.name}". Call resign first.`, this.name);
    }
    this.#campaigning.add(this.name);
    this.#campaign = campaign;
    const leave = this.#heartbeat.onClosing(() => controller.abort(closedError(this.name)));
    const abort = () => controller.abort(signal?.reason);
    if (signal?.aborted === true) abort();
    const listenNoMore = signal === undefined ? undefined : onAbort(signal, abort);
    campaign.ended = this.#run(campaign, body).finally(() => {
      leave();
      listenNoMore?.();
      this.#campaign = undefined;
      this.#campaigning.delete(this.name);
    });
    this.#heartbeat.inBackground(campaign.ended);
    await campaign.ended;
  }

  async resign(): Promise<void> {
    const campaign = this.#campaign;
    if (campaign === undefined) return;
    const message = `This client has resigned as a leader of "${this.name}".`;
    campaign.controller.abort(new HoldfastError("CLOSED", message, { key: this.name }));
    await campaign.ended;
  }

  leader(): Promise<Leader | null> {
    return this.#watch.leader();
  }

  observe(options: ObserveOptions = {}): AsyncGenerator<LeaderView, void, void> {
    checkOptionNames("observe", options, { signal: true });
    return this.#watch.observe(options);
  }

  status(): ElectionStatus {
    const lease = this.#lease;
    const resigning = this.#campaign?.controller.signal.aborted === true;
    const idle = this.#campaign === undefined;
    return jsonable({
      name: this.name,
      state: idle ? "idle" : resigning ? "resigning" : lease?.held === true ? "leading" : "campaigning",
      ...(lease?.held === true ? { fence: lease.fence } : {}),
      available: this.#lastError === undefined,
      ...(this.#lastError === undefined ? {} : { lastError: this.#lastError }),
    });
  }

  async #run(campaign: Campaign, body: LeadBody): Promise<void> {
    const { signal } = campaign.controller;
    while (!signal.aborted) {
      const lease = await this.#elected(campaign);
      // Granted and resigned at the same moment: the office goes back before anybody has led.
      if (lease !== undefined && !signal.aborted) await this.#serve(lease, body, signal);
      if (lease !== undefined) await this.#leave(lease);
      await pause(this.#heartbeat.clock, this.#retryMs, signal, true);
    }
  }

  /** Waits until this candidate is elected. Undefined when it resigned, or the store failed. */
  async #elected({ controller: { signal }, info, priority }: Campaign): Promise<Lease | undefined> {
    try {
      const lease = await this.#lock.acquire({ info, priority, signal });
      this.#lastError = undefined;
      return lease;
    } catch (error) {
      if (signal.aborted) return undefined;
      this.#lastError = HoldfastError.from(error, this.name);
      this.#heartbeat.stats.skipped++;
      const text = `This client cannot campaign for "${this.name}" now: ${this.#lastError.message}`;
      this.#warn("SKIPPED_UNAVAILABLE", text, error);
      return undefined;
    }
  }

  async #serve(lease: Lease, body: LeadBody, resigned: AbortSignal): Promise<void> {
    const { signal, part } = joinSignals([lease.signal, resigned]);
    const told = () => this.#watch.nudge();
    lease.signal.addEventListener("abort", told, { once: true });
    this.#lease = lease;
    this.#watch.nudge();
    const term: Term = {
      name: this.name,
      fence: lease.fence,
      signal,
      get held() {
        return lease.held;
      },
      assertHeld: () => lease.assertHeld(),
    };
    try {
      await runBody(this.#heartbeat, [lease], () => body(term));
    } catch (error) {
      // Whoever was told to stop may say so by throwing.
      if (!signal.aborted) this.#warn("RUN_FAILED", `The body that led "${this.name}" failed.`, error);
    } finally {
      part();
      lease.signal.removeEventListener("abort", told);
    }
  }

  async #leave(lease: Lease): Promise<void> {
    await lease[Symbol.asyncDispose]();
    this.#lease = undefined;
    this.#watch.nudge();
  }

  #warn(code: HoldfastWarning["code"], message: string, cause: unknown): void {
    this.#heartbeat.report.warn({ code, message, key: this.name, cause });
  }
}
