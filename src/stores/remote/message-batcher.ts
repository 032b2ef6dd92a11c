/**
 * Batches requests into messages, within the limits of the server.
 *
 * Requests of one turn of the event loop share a message. A message costs as much as ten operations. So at most two messages are
 * unanswered at a time: further requests wait for the next answer, or for a millisecond.
 */
import type { Writable } from "node:stream";
import { RequestWriter } from "../../protocol/index.ts";
import type { ClaimRef } from "../../store/index.ts";

/** Beyond this number of unanswered messages, requests are delayed. */
const MAX_UNANSWERED = 2;
const MAX_DELAY_MS = 1;

/** A turn with at least this many operations makes two messages. */
const SPLIT_OPERATIONS = 32;

/** Beyond this, the connection fails. */
const MAX_UNSENT_BYTES = 67_108_864;

/** Room in a message besides operations. */
const MESSAGE_SLACK_BYTES = 64;

const NEVER = Number.POSITIVE_INFINITY;

export class MessageBatcher {
  /** The present message. Call `makeRoom` before writing to it. */
  readonly writer = new RequestWriter();
  readonly #stream: Writable;
  readonly #onOverflow: () => void;
  #maxBytes = 1_024;
  #maxOperations = 1;
  #number = 1;
  /** Operations in the present message, and in this turn of the event loop. */
  #inMessage = 0;
  #inTurn = 0;
  /** The number of operations in a turn after which the first message is sent. */
  #splitAt = NEVER;
  #flushing = false;
  /** The latest message with an answer. */
  #answered = 0;
  #delay: NodeJS.Timeout | undefined;
  #blocked = false;
  /** Messages that wait for the stream to drain. */
  #frames: Buffer[] = [];
  #unsentBytes = 0;
  #closed = false;

  constructor(stream: Writable, onOverflow: () => void) {
    this.#stream = stream;
    this.#onOverflow = onOverflow;
    stream.on("drain", () => this.#drained());
  }

  /** The number of the present message. Messages without operations are not counted. */
  get number(): number {
    return this.#number;
  }

  /** Sets the limits of the server for a message. */
  allow(maxBytes: number, maxOperations: number): void {
    this.#maxBytes = maxBytes;
    this.#maxOperations = maxOperations;
  }

  /** Sends the present message first if it has no room for more. Schedules sending the next one. */
  makeRoom(bytes: number, operations: number): void {
    const full =
      this.writer.bytes + bytes + MESSAGE_SLACK_BYTES > this.#maxBytes ||
      this.#inMessage + operations > this.#maxOperations;
    // The server already has a message to work on.
    if (this.#inTurn === 0 && this.#unanswered() > 0) this.#splitAt = NEVER;
    if (full || this.#inTurn >= this.#splitAt) {
      this.flush();
      this.#splitAt = NEVER;
    }
    this.#inMessage += operations;
    this.#inTurn += operations;
    this.#flushSoon();
  }

  /** Sends the present message at once. */
  flush(): void {
    if (this.writer.isEmpty || this.#closed) return;
    if (this.#inMessage > 0) this.#number++;
    this.#inMessage = 0;
    this.#send(this.writer.take());
  }

  /**
   * An operation of this message was answered. The server reads messages in order, so it has read the earlier ones as well. Their
   * open operations wait for the store, and delaying requests would not make them faster.
   */
  answered(message: number): void {
    if (message > this.#answered) this.#answered = message;
    // At the end of the turn, together with the requests that follow the answers.
    if (this.#delay !== undefined) this.#flushSoon();
  }

  /** Splits a list into parts that fit into a message each. */
  partsOf<R extends ClaimRef>(refs: readonly R[]): readonly (readonly R[])[] {
    return partsOf(refs, Math.max(1, Math.floor(this.#maxOperations / 2)), this.#maxBytes / 2);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#delay);
    this.#frames = [];
  }

  /** Sent messages without any answer. */
  #unanswered(): number {
    return this.#number - 1 - this.#answered;
  }

  /** After the present callback, so that the requests after the answers of one message share a message. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    process.nextTick(this.#flushNow);
  }

  readonly #flushNow = () => {
    this.#flushing = false;
    if (this.#unanswered() < MAX_UNANSWERED) this.#flushAll();
    else this.#delay ??= setTimeout(this.#flushAll, MAX_DELAY_MS);
  };

  /**
   * A busy turn is split into two messages, so that the server works on one while this process handles the answers of the other.
   * The split assumes as many operations in the next turn as in this one.
   */
  readonly #flushAll = () => {
    clearTimeout(this.#delay);
    this.#delay = undefined;
    this.flush();
    this.#splitAt = this.#inTurn >= SPLIT_OPERATIONS ? Math.ceil(this.#inTurn / 2) : NEVER;
    this.#inTurn = 0;
  };

  #send(frame: Buffer): void {
    if (this.#blocked) {
      this.#frames.push(frame);
      this.#unsentBytes += frame.length;
      if (this.#unsentBytes > MAX_UNSENT_BYTES) this.#onOverflow();
      return;
    }
    this.#blocked = !this.#stream.write(frame);
  }

  #drained(): void {
    this.#blocked = false;
    const frames = this.#frames;
    this.#frames = [];
    this.#unsentBytes = 0;
    for (const frame of frames) this.#send(frame);
  }
}

/** The most bytes of a reference in a message. */
export function sizeOf({ key, id, token }: ClaimRef): number {
  return 3 * (key.length + id.length + (token?.length ?? 0)) + 64;
}

export function sizeOfAll(refs: readonly ClaimRef[]): number {
  let size = 0;
  for (const ref of refs) size += sizeOf(ref);
  return size;
}

function partsOf<R extends ClaimRef>(
  refs: readonly R[],
  maxRefs: number,
  maxBytes: number,
): readonly (readonly R[])[] {
  if (refs.length <= 1 || (refs.length <= maxRefs && sizeOfAll(refs) <= maxBytes)) return [refs];
  const parts: R[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const ref of refs) {
    const size = sizeOf(ref);
    let part = parts.at(-1);
    if (part === undefined || bytes + size > maxBytes || part.length >= maxRefs) {
      part = [];
      parts.push(part);
      bytes = 0;
    }
    part.push(ref);
    bytes += size;
  }
  return parts;
}
