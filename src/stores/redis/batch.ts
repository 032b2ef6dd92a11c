/** Collects what is asked for in one turn of the event loop and sends it as one script call. */

import type { StayAwake } from "../../platform/index.ts";
import type { ClaimRef, GrantRef } from "../../store/index.ts";
import type { Connection } from "./connection.ts";
import { failedAlone, mapError, unsureOfRelease } from "./errors.ts";
import { nextCall, textReplyTo } from "./numbered-call.ts";
import { type AskedOperation, operationWords } from "./operation-words.ts";
import { Reply } from "./reply.ts";
import { SCRIPT } from "./script.ts";
import { Script } from "./script-call.ts";

/** The verbs of the script. */
export const ACQUIRE = "1";
export const RENEW = "2";
export const RELEASE = "3";
export const LOOK = "4";
export const TRY = "5";

/** The answers to a release: whether it removed the claim. */
export const RELEASED: readonly boolean[] = Object.freeze([true]);
export const NOT_RELEASED: readonly boolean[] = Object.freeze([false]);

/** What is asked for, and whoever awaits the answer. */
export class Operation<T = unknown> implements AskedOperation {
  readonly verb: string;
  readonly key: string;
  readonly id: string;
  readonly token: string;
  readonly asks: string | undefined;
  readonly read: (reply: Reply) => T;
  readonly answer: Promise<T>;
  resolve!: (answer: T) => void;
  reject!: (error: unknown) => void;

  constructor(
    verb: string,
    { key, id, token }: ClaimRef,
    asks: string | undefined,
    read: (reply: Reply) => T,
  ) {
    this.verb = verb;
    this.key = key;
    this.id = id;
    this.token = token ?? "";
    this.asks = asks;
    this.read = read;
    this.answer = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
  }
}

/** The most operations in one script call: at some microseconds each, others wait for a millisecond at the most. */
const MAX_BATCH = 200;

/** From this many on, two calls are made of them: the server works on one while this process does on the other. */
const FIRST_HALVED = 32;

/** The hash of a partition's locks. */
export function locksOf(partition: string): string {
  return `${partition}:locks`;
}

/** As many as a fence can have: it is a whole number that Lua knows exactly. */
const MARK_DIGITS = 16;

const script = new Script(SCRIPT);

export interface BatchOptions {
  readonly connection: Connection;
  readonly awake: StayAwake;
  /** The beginning of the partition's keys, with its hash tag. */
  readonly partition: string;
  readonly channelPrefix: string;
  readonly maxWaiters: number;
  /** The owners whose grants come back in replies, as JSON. */
  owners(): string;
  /** Told of those. */
  onGranted(owner: string, ref: GrantRef): void;
}

export class Batch {
  readonly #options: BatchOptions;
  readonly #locks: string;
  #pending: Operation[] = [];
  /** How many calls the server has not answered yet. */
  #flights = 0;
  /** What is to be done about replies that came, each in a turn of its own. The first is being done. */
  readonly #landed: (() => void)[] = [];
  /** The highest fence that this client has seen of the partition. */
  #mark = 0;
  /** The owners at the latest call, and what the script was told of this store with them. */
  #owners = "";
  #settings = "";

  constructor(options: BatchOptions) {
    this.#options = options;
    this.#locks = locksOf(options.partition);
  }

  ask<T>(operation: Operation<T>): Promise<T> {
    if (this.#pending.length === 0) this.#flushSoon();
    this.#pending.push(operation as Operation);
    return operation.answer;
  }

  /**
   * With nothing under way, at the end of the present callback, so that a lone caller is not kept waiting. Otherwise the
   * server is busy anyway, and callbacks that are due before the event loop's next round may have more to ask for.
   */
  #flushSoon(): void {
    if (this.#flights === 0) process.nextTick(this.#flush);
    else setImmediate(this.#flush);
  }

  /**
   * Takes note of a fence. It goes with every call from now on, so that a server that was promoted without the last
   * writes, and whose clock is behind, gives out none that is lower.
   */
  saw(fence: number): void {
    if (fence > this.#mark) this.#mark = fence;
  }

  /**
   * Many operations go in two halves. With a call under way, though, the server has something to work on already: what is asked for
   * meanwhile is the other half, and smaller parts would only cost both sides more calls.
   */
  readonly #flush = () => {
    const pending = this.#pending;
    this.#pending = [];
    const isHalved = this.#flights === 0 && this.#landed.length === 0 && pending.length >= FIRST_HALVED;
    const size = Math.min(MAX_BATCH, isHalved ? Math.ceil(pending.length / 2) : pending.length);
    for (let from = 0; from < pending.length; from += size) {
      this.#send(size === pending.length ? pending : pending.slice(from, from + size));
    }
  };

  #send(batch: readonly Operation[]): void {
    this.#flights++;
    const wait = this.#options.awake.sent();
    const stamp = String(this.#mark).padStart(MARK_DIGITS, "0") + nextCall();
    const words = this.#words(batch, stamp);
    const { connection } = this.#options;
    const { losses } = connection;
    const releases = batch.some(({ verb }) => verb === RELEASE);
    script.run(connection, this.#locks, words, releases).then(
      (reply) => {
        this.#land(wait, () => this.#answer(batch, stamp, losses, reply));
      },
      (error: unknown) => {
        this.#land(wait, () => this.#fail(batch, error));
      },
    );
  }

  /**
   * Replies that came together get a turn of the event loop each, at the end of which goes out what the callers ask for then.
   * For Redis replies at once to all that it has read at once. Without this, two calls that once met there would stay together,
   * and neither side would ever work while the other does.
   */
  #land(wait: number, done: () => void): void {
    this.#flights--;
    this.#options.awake.answered(wait);
    if (this.#landed.push(done) === 1) this.#nextLanded();
  }

  readonly #nextLanded = () => {
    this.#landed[0]?.();
    // Once the callers have gone on, and before what they ask for is sent.
    process.nextTick(() => {
      this.#landed.shift();
      if (this.#landed.length > 0) setImmediate(this.#nextLanded);
    });
  };

  #answer(batch: readonly Operation[], stamp: string, losses: number, answered: unknown): void {
    try {
      const { connection } = this.#options;
      const text = textReplyTo(stamp, answered, connection, this.#locks);
      const reply = new Reply(text, stamp.length + 1);
      const isOfCopy = connection.resends && losses !== connection.losses;
      for (const operation of batch) this.#settle(operation, reply, isOfCopy);
      this.saw(reply.highestFence);
      while (!reply.ended) {
        const { key } = batch[reply.number() - 1] as Operation;
        this.#options.onGranted(reply.text(), { key, id: reply.text(), fence: reply.fence() });
      }
    } catch (error) {
      this.#fail(batch, error);
    }
  }

  #fail(batch: readonly Operation[], error: unknown): void {
    const mapped = mapError(error);
    for (const operation of batch) operation.reject(mapped);
  }

  /** `isOfCopy`: the client may have sent the call twice. What it did the second time tells nothing of a release that is done. */
  #settle({ key, read, resolve, reject }: Operation, reply: Reply, isOfCopy: boolean): void {
    if (reply.fails) {
      reply.text();
      reject(failedAlone(this.#options.partition, key, reply.text()));
      return;
    }
    const answer = read(reply);
    if (isOfCopy && answer === NOT_RELEASED) reject(unsureOfRelease(key));
    else resolve(answer);
  }

  /** What follows the script in a call: how many keys, the key that says where, the arguments. */
  #words(batch: readonly Operation[], stamp: string): string[] {
    return ["1", this.#locks, this.#settingsText(), stamp, ...operationWords(batch)];
  }

  #settingsText(): string {
    const { maxWaiters, channelPrefix } = this.#options;
    const owners = this.#options.owners();
    if (owners !== this.#owners) {
      this.#owners = owners;
      this.#settings = `[${maxWaiters},${JSON.stringify(channelPrefix)},${owners}]`;
    }
    return this.#settings;
  }
}
