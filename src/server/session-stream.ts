/**
 * The HTTP/2 stream of a session, with bounds on the memory that the client can use.
 *
 * Reading stops while too many operations are unanswered or too many answers unread. A client that does not read for too long is
 * cut off.
 */
import { constants, type Http2ServerResponse, type ServerHttp2Stream } from "node:http2";
import { FrameSplitter, MessageQueue } from "../protocol/index.ts";
import type { ServerContext } from "./context.ts";
import type { BudgetUser } from "./memory-budget.ts";

/** Reading stops while more messages than this are unprocessed. */
const MAX_QUEUED_MESSAGES = 100;

/** The limit of frames that arrive while reading is stopped. A window of a mebibyte has room for a million of them. */
const MAX_UNREAD_FRAMES = 20_000;

/** The approximate memory of Node for one frame of data, even of one byte. */
const FRAME_BYTES = 256;

/** The session behind a stream. */
export interface SessionHandler {
  /** Processes a message. Returns its number of operations. */
  handle(message: Buffer): number;
  /** The client has sent everything, and everything is answered. */
  finished(): void;
  malformed(error: unknown): void;
  slow(): void;
  failed(error: unknown): void;
  closed(): void;
}

export class SessionStream implements BudgetUser {
  /** Unanswered operations. */
  inFlight = 0;
  readonly #stream: ServerHttp2Stream;
  readonly #response: Http2ServerResponse;
  readonly #context: ServerContext;
  readonly #handler: SessionHandler;
  readonly #splitter: FrameSplitter;
  readonly #queue: MessageQueue;
  #unreadFrames = 0;
  #writtenBytes = 0;
  #slowTimer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(response: Http2ServerResponse, context: ServerContext, handler: SessionHandler) {
    const { stream } = response;
    this.#stream = stream;
    this.#response = response;
    this.#context = context;
    this.#handler = handler;
    this.#splitter = new FrameSplitter(context.limits.maxMessageBytes);
    this.#queue = new MessageQueue(
      (message) => {
        const operations = this.#isOver ? 0 : handler.handle(message);
        this.throttle();
        return operations;
      },
      () => this.finishIfDone(),
    );
    this.#countUnreadFrames();
    stream.on("data", (piece: Buffer) => this.#guard(() => this.#receive(piece)));
    stream.on("end", () => this.#guard(() => this.finishIfDone()));
    stream.on("drain", () => this.#guard(() => this.#drained()));
    stream.on("error", () => {});
    stream.on("close", () => {
      this.#end();
      context.budget.set(this, 0);
    });
    stream.respond({ ":status": 200, "content-type": "application/grpc+proto" }, { waitForTrailers: true });
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether the client leaves more unread than it may. */
  get isFull(): boolean {
    return this.#stream.writableLength > this.#context.limits.maxBufferedBytes;
  }

  write(frame: Buffer): void {
    this.#writtenBytes += frame.length;
    this.#stream.write(frame, this.#updateBudget);
  }

  /** Resolves when the client has read, or when the stream is closed. */
  async drained(): Promise<void> {
    if (!this.#stream.writableNeedDrain || this.#isOver) return;
    await new Promise<void>((resolve) => {
      this.#stream.once("drain", resolve).once("close", resolve);
    });
  }

  /** Ends with a status of gRPC. Stops waiting for the client to read after `patienceMs`. */
  finish(status: number, message: string, patienceMs = 1_000): void {
    const stream = this.#stream;
    this.#end();
    if (stream.destroyed) return;
    // Node sends the trailers when the stream asks for them, at its end.
    this.#response.addTrailers({ "grpc-status": `${status}`, "grpc-message": encodeURIComponent(message) });
    // Discards the rest of the request.
    stream.resume();
    stream.end();
    setTimeout(() => stream.destroy(), patienceMs).unref();
  }

  cutOff(reason: string): void {
    if (this.#stream.destroyed) return;
    this.#context.errors.dropped(reason);
    this.#end();
    this.#stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    this.#stream.destroy();
  }

  /** Stops or resumes reading. */
  throttle(): void {
    const { maxInFlight } = this.#context.limits;
    const isPaused = this.isFull || this.inFlight > maxInFlight || this.#queue.length > MAX_QUEUED_MESSAGES;
    if (isPaused !== this.#stream.isPaused()) {
      if (isPaused) this.#stream.pause();
      else this.#stream.resume();
    }
    this.#updateBudget();
    if (this.#stream.writableNeedDrain && this.#slowTimer === undefined) this.#watchReader();
  }

  finishIfDone(): void {
    if (this.inFlight > 0 || !this.#queue.isIdle || this.#isOver) return;
    if (this.#stream.readableEnded) this.#handler.finished();
  }

  #guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#handler.failed(error);
    }
  }

  #receive(piece: Buffer): void {
    if (this.#isOver) return;
    this.#unreadFrames = 0;
    try {
      this.#queue.push(this.#splitter.push(piece));
    } catch (error) {
      this.#handler.malformed(error);
    }
    this.throttle();
  }

  /** Node emits no event for data on a paused stream, so this intercepts the calls that deliver it. */
  #countUnreadFrames(): void {
    const stream = this.#stream;
    const push = stream.push.bind(stream);
    stream.push = (piece: Buffer | null) => {
      if (piece === null || !stream.isPaused()) return push(piece);
      this.#unreadFrames++;
      this.#updateBudget();
      if (this.#unreadFrames > MAX_UNREAD_FRAMES) this.cutOff("malformed");
      // Without a copy, each piece keeps the whole block that Node read along with it.
      return push(Buffer.from(piece));
    };
  }

  readonly #updateBudget = () => {
    const { writableLength, readableLength, destroyed } = this.#stream;
    if (destroyed) return;
    const unread = readableLength + this.#unreadFrames * FRAME_BYTES;
    this.#context.budget.set(this, unread + this.#splitter.keptBytes + writableLength);
  };

  /** Cuts the client off if the bytes that are unread now are still unread later. */
  #watchReader(): void {
    const target = this.#writtenBytes;
    this.#slowTimer = setTimeout(() => {
      this.#slowTimer = undefined;
      if (this.#writtenBytes - this.#stream.writableLength < target) this.#handler.slow();
      else this.throttle();
    }, this.#context.limits.slowReaderMs).unref();
  }

  #drained(): void {
    clearTimeout(this.#slowTimer);
    this.#slowTimer = undefined;
    this.throttle();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#queue.clear();
    clearTimeout(this.#slowTimer);
    this.#handler.closed();
  }
}
