/**
 * What a session has to say, on its way into messages: few of them, and none longer than the server reads.
 *
 * What is asked for in one turn of the event loop goes out together. A message costs as much as ten operations, so that callers
 * who ask at different times would overload both ends with messages of one; therefore only two are under way at a time, and what
 * is asked meanwhile waits for the next answer, or for a millisecond.
 */
import type { Writable } from "node:stream";
import { RequestWriter } from "../../protocol/index.ts";
import type { ClaimRef } from "../../store/index.ts";
import { partsOf } from "./parts.ts";

/** How many messages are under way at the most before what is asked is held back, and for how long that is. */
const MAX_UNDER_WAY = 2;
const HOLD_BACK_MS = 1;

/** From how many operations in one turn of the event loop on two messages are made of them. */
const HALVED_OPERATIONS = 32;

/** How much may wait to be sent before it is an outage. */
const MAX_UNSENT_BYTES = 67_108_864;

/** Room for what a message holds besides operations. */
const MESSAGE_SLACK_BYTES = 64;

const NEVER = Number.POSITIVE_INFINITY;

export class Outbox {
  /** The message that is being made. Make room for something before it is written. */
  readonly writer = new RequestWriter();
  readonly #stream: Writable;
  readonly #onOverflow: () => void;
  #maxBytes = 1_024;
  #maxOperations = 1;
  #number = 1;
  /** How many operations are in the message, and how many were asked in this turn of the event loop. */
  #asked = 0;
  #turn = 0;
  /** After how many operations a message is sent although there will be more. */
  #half = NEVER;
  #flushing = false;
  /** The latest message of which something was answered. */
  #answered = 0;
  #heldBack: NodeJS.Timeout | undefined;
  #blocked = false;
  /** Messages that wait for the stream to take more. */
  #frames: Buffer[] = [];
  #unsentBytes = 0;
  #closed = false;

  constructor(stream: Writable, onOverflow: () => void) {
    this.#stream = stream;
    this.#onOverflow = onOverflow;
    stream.on("drain", () => this.#drained());
  }

  /** Which message an operation goes into for which room has just been made. Messages without operations are not counted. */
  get number(): number {
    return this.#number;
  }

  /** What the server takes in one message. */
  allow(maxBytes: number, maxOperations: number): void {
    this.#maxBytes = maxBytes;
    this.#maxOperations = maxOperations;
  }

  /** Sends what there is when something of this size does not fit in with it. What is written then goes out soon. */
  makeRoom(bytes: number, operations: number): void {
    const full =
      this.writer.bytes + bytes + MESSAGE_SLACK_BYTES > this.#maxBytes ||
      this.#asked + operations > this.#maxOperations;
    // Something is under way already, which the server works on meanwhile.
    if (this.#turn === 0 && this.#underWay() > 0) this.#half = NEVER;
    if (full || this.#turn >= this.#half) {
      this.flush();
      this.#half = NEVER;
    }
    this.#asked += operations;
    this.#turn += operations;
    this.#flushSoon();
  }

  /** Sends what there is, at once. */
  flush(): void {
    if (this.writer.isEmpty || this.#closed) return;
    if (this.#asked > 0) this.#number++;
    this.#asked = 0;
    this.#send(this.writer.take());
  }

  /**
   * An operation of this message has been answered. The server takes messages in order, so it has seen those before as well;
   * what of them is unanswered waits for the store, and holding more back would not make that sooner.
   */
  heard(message: number): void {
    if (message > this.#answered) this.#answered = message;
    // Together with what comes of the answers.
    if (this.#heldBack !== undefined) this.#flushSoon();
  }

  /** Cuts a list into parts of which a message holds each. */
  partsOf<R extends ClaimRef>(refs: readonly R[]): readonly (readonly R[])[] {
    return partsOf(refs, Math.max(1, Math.floor(this.#maxOperations / 2)), this.#maxBytes / 2);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#heldBack);
    this.#frames = [];
  }

  /** How many messages have been sent of which nothing has been answered. */
  #underWay(): number {
    return this.#number - 1 - this.#answered;
  }

  /** At the end of the present callback: answers that came in one message bring their next questions in one, too. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    process.nextTick(this.#flushNow);
  }

  readonly #flushNow = () => {
    this.#flushing = false;
    if (this.#underWay() < MAX_UNDER_WAY) this.#flushAll();
    else this.#heldBack ??= setTimeout(this.#flushAll, HOLD_BACK_MS);
  };

  /**
   * When everything has been answered, the next questions go out as two messages, so that the server works on one while this
   * process does on the other. Their answers come one after the other, and so do the questions after those. As many are
   * expected as there were this time.
   */
  readonly #flushAll = () => {
    clearTimeout(this.#heldBack);
    this.#heldBack = undefined;
    this.flush();
    this.#half = this.#turn >= HALVED_OPERATIONS ? Math.ceil(this.#turn / 2) : NEVER;
    this.#turn = 0;
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
