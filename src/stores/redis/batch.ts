/**
 * Collects the operations of one turn of the event loop and sends them as one script call.
 *
 * Two measures let the server and this process work at the same time: a large batch goes as two calls, and replies that arrive together
 * get a turn of the event loop each.
 */
import type { ClaimRef, GrantRef } from "../../store/index.ts";
import type { Connection } from "./client.ts";
import { failedAlone, mapError, unsureOfRelease } from "./errors.ts";
import { Reply } from "./reply.ts";
import { SCRIPT } from "./script.ts";
import { nextCall, Script } from "./script-call.ts";

export type Verb = "acquire" | "try" | "renew" | "release" | "look" | "confirm";

interface Operation {
  readonly verb: Verb;
  readonly ref: ClaimRef;
  readonly terms: string | undefined;
  readonly read: (reply: Reply) => unknown;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** The most operations of one script call, which then blocks the server for about a millisecond. */
const MAX_BATCH = 200;

/** A batch of this size or more goes as two calls. */
const FIRST_HALVED = 32;

/** The place of the first terms among the arguments of the script. */
const FIRST_TERMS = 4;

/** A fence has at most as many: Lua knows whole numbers up to 2^53 exactly. */
const FENCE_DIGITS = 16;

const script = new Script(SCRIPT);

export interface BatchOptions {
  readonly connection: Connection;
  /** The beginning of the partition's keys, with its hash tag. */
  readonly partition: string;
  /** JSON for the script: the most waiters of a key, the prefix of channels, the owners whose grants come back in replies. */
  settings(): string;
  onGranted(owner: string, ref: GrantRef): void;
}

export class Batch {
  /** The hash of the partition's locks. */
  readonly locks: string;
  readonly #options: BatchOptions;
  #pending: Operation[] = [];
  /** The number of calls that the server has not answered. */
  #calls = 0;
  /** Replies to handle, each in a turn of its own. The first is being handled. */
  readonly #replies: (() => void)[] = [];
  /** The highest fence that this client has seen of the partition. */
  #highestFence = 0n;

  constructor(options: BatchOptions) {
    this.#options = options;
    this.locks = `${options.partition}:locks`;
  }

  ask<T>(verb: Verb, ref: ClaimRef, terms: string | undefined, read: (reply: Reply) => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      // Without a call under way the batch is sent after the present callback, so that a lone caller does not wait.
      if (this.#pending.length === 0) {
        if (this.#calls === 0) process.nextTick(this.#flush);
        else setImmediate(this.#flush);
      }
      const settle = resolve as (answer: unknown) => void;
      this.#pending.push({ verb, ref, terms, read, resolve: settle, reject });
    });
  }

  /**
   * Notes a fence. Each call sends the highest, so that a server that was promoted without the last writes gives out none
   * below it.
   */
  saw(fence: bigint): void {
    if (fence > this.#highestFence) this.#highestFence = fence;
  }

  readonly #flush = () => {
    const pending = this.#pending;
    this.#pending = [];
    // With a call under way, the server has work already.
    const isHalved = this.#calls === 0 && this.#replies.length === 0 && pending.length >= FIRST_HALVED;
    const size = Math.min(MAX_BATCH, isHalved ? Math.ceil(pending.length / 2) : pending.length);
    for (let from = 0; from < pending.length; from += size) this.#send(pending.slice(from, from + size));
  };

  #send(batch: readonly Operation[]): void {
    const { connection, settings } = this.#options;
    this.#calls++;
    const number = String(this.#highestFence).padStart(FENCE_DIGITS, "0") + nextCall();
    const args = [settings(), number, ...argumentsOf(batch)];
    const { losses } = connection;
    const releases = batch.some(({ verb }) => verb === "release");
    script.run(connection, this.locks, number, args, releases).then(
      (reply) => {
        // The client may have sent the call twice. The answer of the second copy to a release says nothing of the first.
        const isOfCopy = connection.resends && losses !== connection.losses;
        this.#enqueueReply(() => this.#answer(batch, new Reply(String(reply[1])), isOfCopy));
      },
      (error: unknown) => this.#enqueueReply(() => fail(batch, error)),
    );
  }

  /**
   * Redis replies at once to all that it has read at once. Without a turn of their own, two calls that once met would stay
   * together, and the server would idle while this process works.
   */
  #enqueueReply(handle: () => void): void {
    this.#calls--;
    if (this.#replies.push(handle) === 1) this.#handleReply();
  }

  readonly #handleReply = () => {
    this.#replies[0]?.();
    // After the callers have gone on, and before their next operations are sent.
    process.nextTick(() => {
      this.#replies.shift();
      if (this.#replies.length > 0) setImmediate(this.#handleReply);
    });
  };

  #answer(batch: readonly Operation[], reply: Reply, isOfCopy: boolean): void {
    try {
      for (const operation of batch) this.#settle(operation, reply, isOfCopy);
      this.saw(reply.highestFence);
      while (!reply.ended) {
        const { key } = (batch[reply.number() - 1] as Operation).ref;
        this.#options.onGranted(reply.text(), { key, id: reply.text(), fence: reply.fence() });
      }
    } catch (error) {
      fail(batch, error);
    }
  }

  #settle({ verb, ref, read, resolve, reject }: Operation, reply: Reply, isOfCopy: boolean): void {
    if (reply.fails) {
      reply.text();
      reject(failedAlone(this.#options.partition, ref.key, reply.text()));
      return;
    }
    const answer = read(reply);
    if (isOfCopy && verb === "release" && answer === false) reject(unsureOfRelease(ref.key));
    else resolve(answer);
  }
}

function fail(batch: readonly Operation[], error: unknown): void {
  const mapped = mapError(error);
  for (const operation of batch) operation.reject(mapped);
}

/** The operations as `script.ts` describes them. */
function argumentsOf(batch: readonly Operation[]): string[] {
  const terms: string[] = [];
  const placeOf = (text: string | undefined) => {
    if (text === undefined) return 0;
    // Mostly equal to those of the operation before.
    const place = terms.lastIndexOf(text);
    return FIRST_TERMS + (place >= 0 ? place : terms.push(text) - 1);
  };
  const operations = [
    batch.map(({ verb }) => verb),
    batch.map(({ ref }) => ref.key),
    batch.map(({ ref }) => `${ref.id}\n${ref.token ?? ""}\n`),
    batch.map((operation) => placeOf(operation.terms)),
  ];
  return [JSON.stringify(operations), ...terms];
}
