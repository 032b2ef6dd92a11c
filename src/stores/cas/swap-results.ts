/** Applies the results of a swap: answers callers, caches records, and puts operations back that must be repeated. */
import { HoldfastError } from "../../store/index.ts";
import { CachedRecord, cachedFrom } from "./cached-record.ts";
import { type Operation, shortened } from "./combine.ts";
import type { ChangeResult, StoredRecord, Version } from "./driver.ts";
import { stillFailing } from "./errors.ts";
import type { KeyBatch } from "./key-batch.ts";
import type { KeyQueue } from "./key-queue.ts";
import type { RequestSchedulerOptions } from "./request-scheduler.ts";

/** When a request was sent and answered, and by how much its claims began later than assumed. */
export interface Timing {
  readonly sentMs: number;
  readonly nowMs: number;
  readonly lateMs: number;
}

export class SwapResults {
  readonly #options: RequestSchedulerOptions;

  constructor(options: RequestSchedulerOptions) {
    this.#options = options;
  }

  apply(batch: KeyBatch, result: ChangeResult | undefined, timing: Timing): void {
    const { random, driver } = this.#options;
    const { queue, operations, combined } = batch;
    const tookMs = timing.nowMs - timing.sentMs;
    switch (result?.state) {
      case "swapped":
        queue.won(timing.nowMs, tookMs, random());
        this.#confirm(batch, result.version, timing);
        return;
      case "same":
        this.#confirm(batch, combined.change.expected, timing);
        return;
      case "conflict":
        if (!batch.isGuess && combined.change.text !== undefined) queue.lost(timing.nowMs, tookMs, random());
        if (this.learn(queue, operations, result.current)) {
          this.#tryAgain(queue, operations, timing, "other processes kept changing the record");
        }
        return;
      case "untimely":
        this.#tryAgain(queue, operations, timing, "the server's clock contradicts its earlier answers");
        return;
      case "failed":
        rejectAll(operations, HoldfastError.from(result.error, queue.key));
        return;
      case undefined: {
        const what = `The driver of the ${driver.name} store left a change of "${queue.key}" unanswered.`;
        rejectAll(operations, new HoldfastError("STORE_FAILURE", what, { key: queue.key }));
      }
    }
  }

  /** Caches the record that the server has. Returns false, and rejects the operations, if it cannot be read. */
  learn(queue: KeyQueue, operations: readonly Operation[], current: StoredRecord | undefined): boolean {
    try {
      queue.cached = cachedFrom(current, queue.key);
      this.#options.onRecord(queue.key, queue.cached.record);
      return true;
    } catch (error) {
      // Other keys of the request go on.
      rejectAll(operations, HoldfastError.from(error, queue.key));
      return false;
    }
  }

  /** The server has the record that the operations were applied to, or now has their result. */
  #confirm(batch: KeyBatch, version: Version | undefined, timing: Timing): void {
    const { queue, operations, combined } = batch;
    const { record, text, left } = combined;
    const { onAnswer, onRecord, combine } = this.#options;
    queue.cached = new CachedRecord(version, text, record);
    combine.lifetimes?.confirm(queue.key, record);
    for (const operation of operations) {
      if (left.includes(operation)) {
        operation.wasLeft = operation.answer !== undefined;
        continue;
      }
      if (operation.error !== undefined) {
        operation.reject(operation.error);
        continue;
      }
      const given = shortened(operation.answer, timing.lateMs);
      const answer = combine.lifetimes?.proven(given, operation.etcdLease, timing.sentMs) ?? given;
      onAnswer(queue.key, operation.asked, answer, record);
      operation.resolve(answer);
    }
    onRecord(queue.key, record);
    if (left.length > 0)
      this.#tryAgain(queue, left, timing, "the store removes claims of processes that died");
  }

  /** Nothing was written, so the operations are repeated until `giveUpMs` is over. */
  #tryAgain(queue: KeyQueue, operations: readonly Operation[], { sentMs, nowMs }: Timing, why: string): void {
    const { giveUpMs, driver } = this.#options;
    const left = operations.filter((operation) => {
      operation.sinceMs ??= sentMs;
      if (operation.sinceMs > nowMs - giveUpMs) return true;
      operation.reject(stillFailing(queue.key, driver.name, giveUpMs, why));
      return false;
    });
    queue.putBack(left);
  }
}

function rejectAll(operations: readonly Operation[], error: HoldfastError): void {
  for (const operation of operations) operation.reject(error);
}
