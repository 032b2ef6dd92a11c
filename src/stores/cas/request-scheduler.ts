/**
 * Batches operations by key, and keys by request. Operations that arrive while requests are under way gather in the queue of
 * their key. A queue is in at most one request at a time, a request carries many queues, and a store sends only a few requests
 * at once. So a hundred callers of one key cost one swap, and so do a hundred keys.
 *
 * No answer comes from the cache alone: the swap compares the cached record's version, even if nothing is written. After a
 * conflict, the operations are applied again to the record that the conflict returned.
 */
import type { Clock, Timer } from "../../platform/index.ts";
import type { LockRecord } from "../../record/index.ts";
import { HoldfastError } from "../../store/index.ts";
import { noRecord } from "./cached-record.ts";
import { type Answer, type Asked, type CombineOptions, combine, Operation, turnOf } from "./combine.ts";
import type { CasDriver, SwapReply } from "./driver.ts";
import { unanswered } from "./errors.ts";
import { KeyBatch } from "./key-batch.ts";
import { type KeyQueue, quietLeftMs } from "./key-queue.ts";
import { KeyQueues } from "./key-queues.ts";
import { lateness, type TimeBounds, type TimeSource, withStamp } from "./server-time.ts";
import { SwapResults } from "./swap-results.ts";

export interface RequestSchedulerOptions {
  readonly driver: CasDriver;
  /** Awaited before the first request. */
  readonly prepare: () => Promise<void>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly time: TimeSource;
  readonly combine: CombineOptions;
  readonly maxConcurrentRequests: number;
  readonly maxChanges: number;
  readonly maxBatchBytes: number;
  readonly cachedKeys: number;
  readonly requestTimeoutMs: number;
  /** How long an operation is repeated while other processes keep changing the key. */
  readonly giveUpMs: number;
  /** Called with every answer just before its caller gets it. */
  onAnswer(key: string, asked: Asked, answer: Answer, record: LockRecord): void;
  /** Called with every record that the server confirmed. */
  onRecord(key: string, record: LockRecord): void;
  /** Called after records were written, with the time until the last of them may be removed. */
  onWritten(keepMs: number): void;
}

export class RequestScheduler {
  readonly #options: RequestSchedulerOptions;
  readonly #queues: KeyQueues;
  readonly #results: SwapResults;
  #ready: KeyQueue[] = [];
  /** Requests for keys that are under way, and requests by `aside`. */
  #sent = 0;
  #aside = 0;
  #isSending = false;
  #closed: HoldfastError | undefined;
  readonly #whenIdle: (() => void)[] = [];
  readonly #timers = new Set<Timer>();

  constructor(options: RequestSchedulerOptions) {
    this.#options = options;
    this.#queues = new KeyQueues(options.cachedKeys);
    this.#results = new SwapResults(options);
  }

  /** Resolves to the answer, or to what `map` makes of it. */
  ask<A>(key: string, asked: Asked, map?: (answer: Answer) => A): Promise<A> {
    return new Promise<A>((resolve, reject) => {
      if (this.#closed !== undefined) {
        reject(this.#closed);
        return;
      }
      const answer = map === undefined ? (resolve as Operation["resolve"]) : (a: Answer) => resolve(map(a));
      const queue = this.#queues.of(key);
      queue.pending.push(new Operation(asked, answer, reject));
      this.#schedule(queue);
    });
  }

  /** Sends a request that belongs to no queue, with the same timeout. `close` waits for it. */
  async aside<R>(send: () => Promise<R>): Promise<R> {
    this.#aside++;
    try {
      return await this.#withTimeout(send);
    } catch (error) {
      throw HoldfastError.from(error);
    } finally {
      this.#aside--;
      this.#noteIdle();
    }
  }

  /** Rejects pending operations with this error, and resolves when no request is under way. */
  async close(error: HoldfastError): Promise<void> {
    this.#closed ??= error;
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
    this.#ready = [];
    for (const queue of this.#queues.values()) queue.rejectPending(this.#closed);
    if (this.#sent + this.#aside > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve));
    this.#queues.clear();
  }

  /** The cached record of a key. */
  recordOf(key: string): LockRecord | undefined {
    return this.#queues.peek(key)?.cached?.record;
  }

  #schedule(queue: KeyQueue): void {
    if (queue.isQueued || queue.isSent || queue.pending.length === 0) return;
    queue.isQueued = true;
    const { restUntilMs } = queue;
    // Most queues never rest, and need no look at the clock.
    const pauseMs =
      restUntilMs === Number.NEGATIVE_INFINITY ? 0 : restUntilMs - this.#options.clock.monotonicMs();
    this.#enqueueIn(queue, pauseMs);
  }

  #enqueueIn(queue: KeyQueue, pauseMs: number): void {
    if (pauseMs > 0) {
      const timer = this.#options.clock.setTimer(pauseMs, () => {
        this.#timers.delete(timer);
        this.#enqueueIn(queue, 0);
      });
      timer.keepAlive(true);
      this.#timers.add(timer);
      return;
    }
    this.#ready.push(queue);
    this.#sendSoon();
  }

  /** Waits for all microtasks, so that operations of the same turn share a request. */
  #sendSoon(): void {
    if (this.#isSending) return;
    this.#isSending = true;
    queueMicrotask(() => process.nextTick(this.#sendNow));
  }

  readonly #sendNow = () => {
    this.#isSending = false;
    const { maxConcurrentRequests, clock, time, maxChanges } = this.#options;
    while (this.#ready.length > 0 && this.#sent < maxConcurrentRequests && this.#closed === undefined) {
      const nowMs = clock.monotonicMs();
      const bounds = time.at(nowMs);
      if (bounds === undefined) void this.#read(this.#ready.splice(0, maxChanges));
      else {
        this.#holdBack(bounds, nowMs);
        if (this.#ready.length > 0) void this.#swap(this.#takeBatches(bounds), bounds, nowMs);
      }
    }
  };

  /** In a quiet period, contended queues wait for its end. */
  #holdBack({ highMs }: TimeBounds, nowMs: number): void {
    const quietMs = quietLeftMs(highMs);
    if (quietMs === 0) return;
    const ready: KeyQueue[] = [];
    for (const queue of this.#ready) {
      if (queue.isContended(nowMs)) this.#enqueueIn(queue, quietMs);
      else ready.push(queue);
    }
    this.#ready = ready;
  }

  #takeBatches(bounds: TimeBounds): KeyBatch[] {
    const { combine: options, maxBatchBytes, maxChanges } = this.#options;
    const batches: KeyBatch[] = [];
    const turn = turnOf(withStamp(bounds));
    let bytes = 0;
    for (const queue of this.#ready) {
      if (batches.length >= maxChanges || bytes >= maxBatchBytes) break;
      const operations = queue.take();
      const cached = queue.takeCached();
      // Without a cached record, the key is taken to have none.
      const combined = combine(queue.key, cached ?? noRecord(), operations, turn, options);
      bytes += combined.change.text?.length ?? 0;
      batches.push(new KeyBatch(queue, operations, combined, cached === undefined));
    }
    this.#ready.splice(0, batches.length);
    return batches;
  }

  /** The first request, and the first after a long silence: asks for the time, and for the records. */
  async #read(queues: readonly KeyQueue[]): Promise<void> {
    const { driver, prepare, time, clock } = this.#options;
    const batches = queues.map((queue) => ({ queue, operations: queue.take() }));
    let sentMs = 0;
    const send = async () => {
      await prepare();
      sentMs = clock.monotonicMs();
      return driver.read(queues.map((queue) => queue.key));
    };
    await this.#request(batches, send, (reply) => {
      time.add(reply.nowMs, sentMs, clock.monotonicMs());
      for (const [index, { queue, operations }] of batches.entries()) {
        if (this.#results.learn(queue, operations, reply.records[index])) queue.putBack(operations);
      }
    });
  }

  async #swap(batches: readonly KeyBatch[], bounds: TimeBounds, sentMs: number): Promise<void> {
    const { driver, requestTimeoutMs } = this.#options;
    const changes = batches.map(({ combined }) => combined.change);
    const stamped = bounds.stamp === undefined ? {} : { stamp: bounds.stamp };
    const latestMs = bounds.highMs + requestTimeoutMs;
    const batch = { changes, earliestMs: bounds.lowMs, latestMs, ...stamped };
    await this.#request(
      batches,
      () => driver.swap(batch),
      (reply) => this.#receive(batches, reply, bounds, sentMs),
    );
  }

  #receive(batches: readonly KeyBatch[], reply: SwapReply, bounds: TimeBounds, sentMs: number): void {
    const { time, clock, driver } = this.#options;
    const nowMs = clock.monotonicMs();
    const lateMs = driver.lifetimes === undefined ? lateness(bounds.highMs, reply.nowMs) : 0;
    // The server contradicts the samples.
    if (reply.results.some(({ state }) => state === "untimely")) time.reset();
    time.add(reply.nowMs, sentMs, nowMs);
    let keepUntilMs = Number.NEGATIVE_INFINITY;
    for (const [index, batch] of batches.entries()) {
      const result = reply.results[index];
      this.#results.apply(batch, result, { lateMs, sentMs, nowMs });
      if (result?.state === "swapped") keepUntilMs = Math.max(keepUntilMs, batch.combined.change.keepUntilMs);
    }
    if (keepUntilMs > Number.NEGATIVE_INFINITY) this.#options.onWritten(keepUntilMs - reply.nowMs);
  }

  /** If the request fails, its outcome is unknown: nothing is cached, and no operation is repeated. */
  async #request<R>(
    batches: readonly Pick<KeyBatch, "queue" | "operations">[],
    send: () => Promise<R>,
    receive: (reply: R) => void,
  ): Promise<void> {
    this.#sent++;
    try {
      receive(await this.#withTimeout(send));
    } catch (error) {
      const failure = HoldfastError.from(error);
      for (const { operations } of batches) for (const operation of operations) operation.reject(failure);
    }
    this.#sent--;
    this.#noteIdle();
    for (const { queue } of batches) {
      queue.isSent = false;
      if (this.#closed === undefined) this.#schedule(queue);
      else queue.rejectPending(this.#closed);
    }
    if (this.#ready.length > 0) this.#sendSoon();
  }

  #noteIdle(): void {
    if (this.#sent + this.#aside === 0) for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  #withTimeout<R>(send: () => Promise<R>): Promise<R> {
    const { clock, requestTimeoutMs, driver } = this.#options;
    return new Promise((resolve, reject) => {
      const timer = clock.setTimer(requestTimeoutMs, () => reject(unanswered(driver.name, requestTimeoutMs)));
      timer.keepAlive(true);
      const settle = () => timer.cancel();
      // An async function turns an exception of the driver into a rejection.
      const reply = (async () => send())();
      reply.then(settle, settle);
      reply.then(resolve, reject);
    });
  }
}
