import { type Clock, systemClock } from "../../platform/index.ts";
import { decodeRecord, describe, emptyRecord, type LockRecord } from "../../record/index.ts";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  checkFraction,
  checkInteger,
  checkKey,
  checkOptionNames,
  checkQuery,
  checkRenewRef,
  checkRequest,
  closedStore,
  commonFailure,
  type Durability,
  type GrantListener,
  invalid,
  type KeyStatus,
  type LookPage,
  type LookQuery,
  type RenewAnswer,
  type RenewRef,
  type Store,
  type Unsubscribe,
} from "../../store/index.ts";
import type { Answer, Asked } from "./combine.ts";
import type { CasDriver, ListReply, ReadReply, Timed } from "./driver.ts";
import type { Lifetimes } from "./lifetimes.ts";
import { type CasStoreOptions, casDefaults, casOptionNames } from "./options.ts";
import { RequestScheduler } from "./request-scheduler.ts";
import { ServerTime, type TimeSource } from "./server-time.ts";
import { Sweeper } from "./sweeper.ts";
import { WakeUps } from "./wake-ups.ts";

const MIB = 1_048_576;

/** How long the server's time is reckoned with after it was last heard. */
const MAX_SAMPLE_AGE_MS = 60_000;
/** The same where the server does not object if its clock was set meanwhile. */
const MAX_UNCHECKED_AGE_MS = 5_000;

/**
 * A store over any database that can compare and swap one value per key, through a driver. docs/stores/writing-a-store.md
 * tells how to write one.
 *
 * @example
 * const locks = createLocks(casStore(myDriver));
 */
export function casStore(driver: CasDriver, options: CasStoreOptions = {}): Store {
  checkOptionNames("casStore", options, casOptionNames);
  checkDriver(driver);
  return new CasStore(driver, options);
}

function checkDriver(driver: CasDriver): void {
  const { read, swap, list } = Object(driver) as Partial<CasDriver>;
  if ([read, swap, list].every((method) => typeof method === "function")) return;
  throw invalid(
    "driver must have read, swap and list, as a CasDriver does. See docs/stores/writing-a-store.md.",
  );
}

class CasStore implements Store {
  readonly name: string;
  readonly durability: Durability;
  readonly counts = true;
  readonly #driver: CasDriver;
  readonly #clock: Clock;
  readonly #time: TimeSource;
  readonly #lifetimes: Lifetimes | undefined;
  readonly #scheduler: RequestScheduler;
  readonly #wakeUps: WakeUps;
  readonly #sweeper: Sweeper;
  #isPrepared = false;
  #closing: Promise<void> | undefined;

  constructor(driver: CasDriver, options: CasStoreOptions) {
    const { limits = {} } = driver;
    const requestTimeoutMs = checkInteger(
      "requestTimeoutMs",
      options.requestTimeoutMs ?? casDefaults.requestTimeoutMs,
      10,
      600_000,
    );
    const keepIdleMs = checkInteger(
      "keepIdleMs",
      options.keepIdleMs ?? casDefaults.keepIdleMs,
      requestTimeoutMs + 1,
      86_400_000,
    );
    const minPollMs = checkInteger("minPollMs", options.minPollMs ?? 20, 1, 60_000);
    this.name = driver.name;
    this.durability = driver.durability;
    this.#driver = driver;
    this.#clock = options.clock ?? systemClock;
    const drift = checkFraction("clockDrift", options.clockDrift ?? casDefaults.clockDrift, 0.1);
    this.#lifetimes = driver.lifetimes;
    // Asked each time: a driver may learn at its first request whether the server checks the time.
    const maxAgeMs = () => (driver.checksTime ? MAX_SAMPLE_AGE_MS : MAX_UNCHECKED_AGE_MS);
    this.#time = driver.lifetimes?.time ?? new ServerTime(drift, maxAgeMs);
    driver.lifetimes?.start({
      settle: (key) => this.#scheduler.ask(key, { verb: "settle" }),
      lookAgain: (mayConcern) => this.#wakeUps.lookAgain((key) => mayConcern(this.#scheduler.recordOf(key))),
    });
    const sweep = (limit: number) => this.#scheduler.aside(async () => (await driver.sweep?.(limit)) ?? 0);
    const random = options.random ?? Math.random;
    this.#sweeper = new Sweeper(driver.sweep && sweep, this.#clock, random, keepIdleMs);
    this.#wakeUps = new WakeUps({
      driver,
      clock: this.#clock,
      minPollMs,
      maxPollMs: checkInteger("maxPollMs", options.maxPollMs ?? 1_000, minPollMs, 60_000),
      lookAgain: (key) => this.#scheduler.ask(key, { verb: "settle" }),
    });
    this.#scheduler = new RequestScheduler({
      driver,
      prepare: () => this.#prepare(),
      clock: this.#clock,
      random,
      time: this.#time,
      combine: {
        maxWaiters: checkInteger("maxWaiters", options.maxWaiters ?? 1_000, 0, 1_000_000),
        maxRecordBytes: checkInteger("recordBytes", limits.recordBytes ?? MIB, 4_096, 1_024 * MIB),
        keepIdleMs,
        lifetimes: this.#lifetimes,
        isLocal: (owner) => this.#wakeUps.isLocal(owner),
      },
      maxConcurrentRequests: checkInteger("maxConcurrentRequests", options.maxConcurrentRequests ?? 4, 1, 64),
      maxChanges: checkInteger("changes", limits.changes ?? 256, 1, 10_000),
      maxBatchBytes: checkInteger("batchBytes", limits.batchBytes ?? MIB, 1, 1_024 * MIB),
      cachedKeys: checkInteger("cachedKeys", options.cachedKeys ?? 10_000, 1, 10_000_000),
      requestTimeoutMs,
      giveUpMs: checkInteger("giveUpMs", options.giveUpMs ?? 10_000, 1, 600_000),
      onAnswer: (key, asked, answer, record) => this.#note(key, asked, answer, record),
      onRecord: (key, record) => this.#wakeUps.seen(key, record),
      onWritten: (keepMs) => this.#sweeper.expect(keepMs),
    });
  }

  // Neither of these two is an async function, as most calls have nothing to wait for but the answer.

  acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    try {
      checkRequest(request);
      this.#checkOpen();
      const isUnheard = request.wait && this.#wakeUps.isUnheard(request.owner);
      if (isUnheard || this.#lifetimes !== undefined) return this.#acquireWhenReady(request);
      return this.#scheduler.ask(request.key, { verb: "acquire", request });
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async #acquireWhenReady(request: ClaimRequest): Promise<AcquireAnswer> {
    const { key, owner, wait } = request;
    const ready = wait ? this.#wakeUps.ready(owner) : undefined;
    if (ready !== undefined) await ready;
    const canLive = this.#lifetimes?.ready(request.ttlMs);
    if (canLive !== undefined) await this.#scheduler.aside(() => canLive);
    const isUnheard = wait && this.#wakeUps.isUnheard(owner);
    // Awaited here: to return a promise from an async function takes two more turns than that.
    const answer = await this.#scheduler.ask<AcquireAnswer>(key, { verb: "acquire", request });
    if (isUnheard && answer.state === "waiting") this.#wakeUps.waitsUnheard(key, owner);
    return answer;
  }

  async renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    for (const ref of refs) checkRenewRef(ref);
    this.#checkOpen();
    const waits = this.#readyFor(refs);
    const settled = await Promise.allSettled(
      refs.map((ref) => {
        const ask = () => this.#scheduler.ask<RenewAnswer>(ref.key, { verb: "renew", ref });
        const ready = ref.ttlMs === undefined ? undefined : waits.get(ref.ttlMs);
        return ready === undefined ? ask() : ready.then(ask);
      }),
    );
    const failure = commonFailure(settled);
    // One record that is damaged, one ttl that is too short, or one flight of several that was lost, must not cost the leases
    // of all others.
    if (failure !== undefined) throw failure;
    return settled.map((each) =>
      each.status === "rejected" ? { state: "failed", error: each.reason } : each.value,
    );
  }

  /** What has to be awaited for each ttl before it can be asked for. A heartbeat has many claims, and few ttls. */
  #readyFor(refs: readonly RenewRef[]): ReadonlyMap<number, Promise<void>> {
    const waits = new Map<number, Promise<void>>();
    if (this.#lifetimes === undefined) return waits;
    for (const ttlMs of new Set(refs.map((ref) => ref.ttlMs))) {
      if (ttlMs === undefined) continue;
      const ready = this.#lifetimes.ready(ttlMs);
      if (ready !== undefined)
        waits.set(
          ttlMs,
          this.#scheduler.aside(() => ready),
        );
    }
    return waits;
  }

  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    try {
      for (const ref of refs) checkRenewRef(ref);
      this.#checkOpen();
      const [first] = refs;
      if (refs.length === 1 && first !== undefined) {
        return this.#scheduler.ask(first.key, { verb: "release", ref: first }, inList);
      }
      return Promise.all(refs.map((ref) => this.#scheduler.ask<boolean>(ref.key, { verb: "release", ref })));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    this.#checkOpen();
    if ("prefix" in query) return this.#page(query);
    const { key, maxClaims } = query;
    const { reply, nowMs } = await this.#timed((): Promise<ReadReply> => this.#driver.read([key]));
    const stored = reply.records[0];
    const record = stored === undefined ? emptyRecord() : decodeRecord(stored.text, key);
    await this.#show([{ key, record }], nowMs);
    return { keys: [describe(record, key, nowMs, maxClaims)] };
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    return this.#wakeUps.listen(owner, listener);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#wakeUps.close();
    this.#sweeper.close();
    this.#lifetimes?.close();
    await this.#scheduler.close(closedStore(this.name));
    await this.#driver.close?.();
  }

  #checkOpen(): void {
    if (this.#closing !== undefined) throw closedStore(this.name);
  }

  async #prepare(): Promise<void> {
    if (this.#isPrepared) return;
    await this.#driver.prepare?.();
    this.#isPrepared = true;
  }

  /** Keeps in mind who waits here. */
  #note(key: string, asked: Asked, answer: Answer, record: LockRecord): void {
    if (asked.verb === "settle") return;
    const { id } = asked.verb === "acquire" ? asked.request : asked.ref;
    if (typeof answer !== "object" || answer.state !== "waiting") {
      // A stranger's heartbeat or release changes nothing about who waits.
      if (answer === true || (typeof answer === "object" && answer.state === "held"))
        this.#wakeUps.forget(key, id);
      return;
    }
    const untilMs = this.#clock.monotonicMs() + answer.expiresInMs;
    if (asked.verb === "acquire") this.#wakeUps.waits(key, id, asked.request.owner, untilMs);
    else if (!this.#wakeUps.stillWaits(key, id, untilMs)) {
      const claim = record.queue.find((waiting) => waiting.id === id);
      if (claim !== undefined) this.#wakeUps.waits(key, id, claim.owner, untilMs);
    }
  }

  async #page(query: Extract<LookQuery, { prefix: string }>): Promise<LookPage> {
    const { prefix, cursor, limit, maxClaims } = query;
    if (cursor !== undefined) checkKey(cursor, "cursor");
    const { reply, nowMs } = await this.#timed(
      (): Promise<ListReply> => this.#driver.list(prefix, cursor, limit),
    );
    const records = reply.records.map(({ key, text }) => ({ key, record: decodeRecord(text, key) }));
    await this.#show(records, nowMs);
    const keys: KeyStatus[] = [];
    for (const { key, record } of records) {
      const status = describe(record, key, nowMs, maxClaims);
      if (status.heldCount + status.waitingCount > 0) keys.push(status);
    }
    const last = reply.records.at(-1);
    return reply.records.length < limit || last === undefined ? { keys } : { keys, cursor: last.key };
  }

  /** Where claims hang on etcd leases, says when they end. */
  async #show(records: readonly { readonly key: string; readonly record: LockRecord }[], nowMs: number) {
    const lifetimes = this.#lifetimes;
    if (lifetimes !== undefined) await this.#scheduler.aside(() => lifetimes.show(records, nowMs));
  }

  /** Asks the driver, and tells what time it was on the server at the latest when the reply came. */
  async #timed<R extends Timed>(ask: () => Promise<R>): Promise<{ reply: R; nowMs: number }> {
    let sentMs = 0;
    const reply = await this.#scheduler.aside(async () => {
      await this.#prepare();
      sentMs = this.#clock.monotonicMs();
      return ask();
    });
    const receivedMs = this.#clock.monotonicMs();
    this.#time.add(reply.nowMs, sentMs, receivedMs);
    return { reply, nowMs: this.#time.at(receivedMs)?.highMs ?? reply.nowMs };
  }
}

function inList(answer: Answer): readonly boolean[] {
  return [answer as boolean];
}
