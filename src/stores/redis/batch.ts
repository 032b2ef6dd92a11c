/** Collects what is asked for in one turn of the event loop and sends it as one script call. */
import { createHash } from "node:crypto";
import type { GrantRef } from "../../core/index.ts";
import type { Connection } from "./connection.ts";
import { foreignKey, mapError, replyCode } from "./errors.ts";
import { nextCall, replyTo } from "./numbered-call.ts";
import { SCRIPT } from "./script.ts";

const { byteLength } = Buffer;

/** The verbs of the script. */
export const ACQUIRE = "1";
export const RENEW = "2";
export const RELEASE = "3";
export const LOOK = "4";
export const TRY = "5";

interface Operation {
  readonly verb: string;
  readonly key: string;
  /** The claim's id and token, as {@link nameOf} puts them. */
  readonly name: string;
  /** What else the verb needs, such as the terms of an acquire. What most of a batch have in common is sent once. */
  readonly asks: string | undefined;
  readonly read: (reply: Reply) => unknown;
  readonly resolve: (answer: never) => void;
  readonly reject: (error: unknown) => void;
}

/** The first word of what an operation came to that failed by itself. */
const FAILED = -1;

/** The list that the script replies, from which each operation reads its own. The number of the call comes before. */
export class Reply {
  readonly #words: readonly unknown[];
  #next = 1;

  constructor(words: readonly unknown[]) {
    this.#words = words;
  }

  get ended(): boolean {
    return this.#next >= this.#words.length;
  }

  /** Whether what follows is the failure of one operation alone. */
  get fails(): boolean {
    return Number(this.#words[this.#next]) === FAILED;
  }

  next(): unknown {
    return this.#words[this.#next++];
  }

  // A client can be set to hand numbers out as text.

  number(): number {
    return Number(this.next());
  }

  text(): string {
    return String(this.next());
  }

  fence(): bigint {
    return BigInt(this.next() as number | string);
  }
}

/** Neither part can contain a line break. */
export function nameOf(id: string, token: string | undefined): string {
  return `${id}\n${token ?? ""}`;
}

/** The most operations in one script call: at some microseconds each, others wait for a millisecond at the most. */
const MAX_BATCH = 200;

/** From twice this many on, two calls are made of them: the server works on one while this process does on the other. */
const MIN_BATCH = 16;

/** What stands between the partition and the name of a lock. The script knows its length. */
export const LOCK = ":lock:";

const SHA = createHash("sha1").update(SCRIPT).digest("hex");

export interface BatchOptions {
  readonly connection: Connection;
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
  #pending: Operation[] = [];
  /** How many calls the server has not answered yet. */
  #flights = 0;
  /** The highest fence that this client has seen of the partition. */
  #mark = 0n;

  constructor(options: BatchOptions) {
    this.#options = options;
  }

  ask<T>(
    verb: string,
    key: string,
    name: string,
    asks: string | undefined,
    read: (reply: Reply) => T,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#pending.length === 0) this.#flushSoon();
      this.#pending.push({ verb, key, name, asks, read, resolve, reject });
    });
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
  saw(fence: bigint): void {
    if (fence > this.#mark) this.#mark = fence;
  }

  readonly #flush = () => {
    const pending = this.#pending;
    this.#pending = [];
    const size = Math.min(MAX_BATCH, Math.max(MIN_BATCH, Math.ceil(pending.length / 2)));
    if (pending.length < 2 * MIN_BATCH) void this.#send(pending);
    else
      for (let from = 0; from < pending.length; from += size)
        void this.#send(pending.slice(from, from + size));
  };

  async #send(batch: readonly Operation[]): Promise<void> {
    this.#flights++;
    try {
      const number = nextCall();
      const words = this.#words(batch, number);
      const { connection, partition } = this.#options;
      const reply = new Reply(replyTo(number, await this.#call(words), connection, `${partition}:fence`));
      for (const operation of batch) this.#settle(operation, reply);
      while (!reply.ended) {
        const { key } = batch[reply.number() - 1] as Operation;
        this.#options.onGranted(reply.text(), { key, id: reply.text(), fence: reply.fence() });
      }
    } catch (error) {
      const mapped = mapError(error);
      for (const operation of batch) operation.reject(mapped);
    } finally {
      this.#flights--;
    }
  }

  #settle({ key, read, resolve, reject }: Operation, reply: Reply): void {
    if (reply.fails) {
      reply.next();
      reject(foreignKey(this.#options.partition, key, reply.text()));
    } else {
      resolve(read(reply) as never);
    }
  }

  /** What follows the script in a call: how many keys, the key that says where, the arguments. */
  #words(batch: readonly Operation[], number: string): string[] {
    const { partition, channelPrefix, maxWaiters } = this.#options;
    const asked = new Places();
    // Joined at once: a text that grows piece by piece is put together again, at a multiple of the cost, to be sent.
    const pieces: string[] = [];
    for (const { verb, key, name, asks } of batch) {
      const place = asks === undefined ? NOWHERE : asked.of(asks);
      pieces.push(verb, place, twoCharacters(byteLength(key)), twoCharacters(byteLength(name)), key, name);
    }
    const owners = this.#options.owners();
    const where = ["1", `${partition}:fence`];
    const fixed = [owners, String(maxWaiters), partition, channelPrefix, String(this.#mark), number];
    return [...where, ...fixed, pieces.join(""), ...asked.texts];
  }

  async #call(words: readonly string[]): Promise<unknown> {
    const { connection } = this.#options;
    const where = words[1] as string;
    try {
      return await connection.send(where, "EVALSHA", [SHA, ...words]);
    } catch (error) {
      if (replyCode(error) !== "NOSCRIPT") throw error;
      // Sent whole once; from then on the server knows it by its hash.
      return connection.send(where, "EVAL", [SCRIPT, ...words]);
    }
  }
}

/** How many arguments of the script come before what the operations ask for. */
const FIXED_ARGUMENTS = 7;

/** The place of what is not asked for. */
const NOWHERE = "00";

/** Texts at the end of a script's arguments, in which equal ones share a place. Lua counts from 1. */
class Places {
  readonly texts: string[] = [];
  readonly #places = new Map<string, string>();
  #lastText: string | undefined;
  #lastPlace = NOWHERE;

  of(text: string): string {
    // It is mostly that of the neighbour.
    if (text === this.#lastText) return this.#lastPlace;
    let place = this.#places.get(text);
    if (place === undefined) {
      place = twoCharacters(FIXED_ARGUMENTS + this.texts.push(text));
      this.#places.set(text, place);
    }
    this.#lastText = text;
    this.#lastPlace = place;
    return place;
  }
}

/** A number below 4,096 as two characters of plain text. */
function twoCharacters(number: number): string {
  return String.fromCharCode(48 + (number >> 6), 48 + (number & 63));
}
