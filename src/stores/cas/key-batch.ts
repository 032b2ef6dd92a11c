import type { Combined, Operation } from "./combine.ts";
import type { KeyQueue } from "./key-queue.ts";

/** The operations on one key in one request. */
export class KeyBatch {
  readonly queue: KeyQueue;
  readonly operations: readonly Operation[];
  readonly combined: Combined;
  /** Whether no record was cached. A conflict then says nothing about other processes. */
  readonly isGuess: boolean;

  constructor(queue: KeyQueue, operations: readonly Operation[], combined: Combined, isGuess: boolean) {
    this.queue = queue;
    this.operations = operations;
    this.combined = combined;
    this.isGuess = isGuess;
  }
}
