/** Collects what is asked for in one turn of the event loop and sends it as one script call. */
import { createHash } from "node:crypto";
import type { Connection } from "./connection.ts";
import { foreignKey, mapError, replyCode } from "./errors.ts";
import { SCRIPT } from "./script.ts";

/** An operation as the script takes it: its verb, the place of its key, and what the verb needs. */
type Words = (string | number)[];

/** The place of the key in an operation. It is known only when the batch is. */
export const KEY_PLACE = 0;

interface Pending {
  readonly key: string;
  readonly words: Words;
  readonly terms: string | undefined;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** The most operations in one script call: at some microseconds each, others wait for a millisecond at the most. */
const MAX_BATCH = 200;

/** The first word of an answer to an operation that failed by itself. */
const FAILED = -1;

/** What stands between the partition and the name of a lock. The script knows its length. */
export const LOCK = ":lock:";

const SHA = createHash("sha1").update(SCRIPT).digest("hex");

export interface BatchOptions {
  readonly connection: Connection;
  /** The beginning of the partition's keys, with its hash tag. */
  readonly partition: string;
  readonly channelPrefix: string;
  readonly maxWaiters: number;
  /** The owners whose grants come back in replies. */
  owners(): readonly string[];
  /** Told of those. */
  onGranted(owner: string, key: string, id: string): void;
}

export class Batch {
  readonly #options: BatchOptions;
  #pending: Pending[] = [];
  /** The highest fence that this client has seen of the partition. */
  #mark = 0n;

  constructor(options: BatchOptions) {
    this.#options = options;
  }

  /**
   * Asks for an operation, whose second word is {@link KEY_PLACE}. The terms are those of an acquire: what most of a
   * batch have in common, and so is sent once.
   */
  ask(key: string, words: Words, terms?: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#pending.length === 0) setImmediate(this.#flush);
      this.#pending.push({ key, words, terms, resolve, reject });
    });
  }

  /**
   * Takes note of a fence. It goes with every call from now on, so that a server that was promoted without the last
   * writes, and whose clock is behind, gives out none that is lower.
   */
  saw(fence: bigint): void {
    if (fence > this.#mark) this.#mark = fence;
  }

  readonly #flush = () => {
    const pending = this.#pending;
    this.#pending = [];
    for (let from = 0; from < pending.length; from += MAX_BATCH) {
      void this.#send(pending.length <= MAX_BATCH ? pending : pending.slice(from, from + MAX_BATCH));
    }
  };

  async #send(batch: readonly Pending[]): Promise<void> {
    const { partition, channelPrefix, maxWaiters } = this.#options;
    const owners = JSON.stringify(this.#options.owners());
    const keys = new Numbered(`${partition}:fence`);
    const args = new Numbered("", owners, String(maxWaiters), partition, channelPrefix, `${this.#mark}`);
    const beginning = partition + LOCK;
    const operations: Words[] = [];
    for (const { key, words, terms } of batch) {
      words[1] = keys.numberOf(beginning + key);
      if (terms !== undefined) words.push(args.numberOf(terms));
      operations.push(words);
    }
    args.texts[0] = JSON.stringify(operations);
    try {
      const [granted, answers] = (await this.#call(keys.texts, args.texts)) as [
        (number | string)[],
        unknown[],
      ];
      for (let index = 0; index < batch.length; index++)
        this.#settle(batch[index] as Pending, answers[index]);
      for (let i = 0; i < granted.length; i += 3) {
        const key = (keys.texts[Number(granted[i]) - 1] as string).slice(partition.length + LOCK.length);
        this.#options.onGranted(String(granted[i + 1]), key, String(granted[i + 2]));
      }
    } catch (error) {
      const mapped = mapError(error);
      for (const operation of batch) operation.reject(mapped);
    }
  }

  #settle({ key, resolve, reject }: Pending, answer: unknown): void {
    if (Array.isArray(answer) && Number(answer[0]) === FAILED) {
      reject(foreignKey(this.#options.partition, key, String(answer[1])));
    } else {
      resolve(answer);
    }
  }

  async #call(keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const { connection } = this.#options;
    const where = keys[0] as string;
    const rest = [String(keys.length), ...keys, ...args];
    try {
      return await connection.send(where, "EVALSHA", [SHA, ...rest]);
    } catch (error) {
      if (replyCode(error) !== "NOSCRIPT") throw error;
      // Sent whole once; from then on the server knows it by its hash.
      return connection.send(where, "EVAL", [SCRIPT, ...rest]);
    }
  }
}

/** A list of texts for a script, in which equal ones share a place. Lua counts from 1. */
class Numbered {
  readonly texts: string[];
  readonly #numbers = new Map<string, number>();
  #lastNumber = 0;

  constructor(...first: string[]) {
    this.texts = first;
  }

  numberOf(text: string): number {
    // Terms are mostly those of the neighbour.
    if (this.#lastNumber > 0 && this.texts[this.#lastNumber - 1] === text) return this.#lastNumber;
    let number = this.#numbers.get(text);
    if (number === undefined) {
      number = this.texts.push(text);
      this.#numbers.set(text, number);
    }
    this.#lastNumber = number;
    return number;
  }
}
