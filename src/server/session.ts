/**
 * One session: reads operations, asks the store, and writes answers and pushed grants, with as few messages as there are
 * turns of the event loop.
 *
 * What a client can make it keep is bounded. It stops reading while too much is unanswered or unread; what was read by then
 * is answered. Grants are hints, so they are left out while the client does not read. A client that does not read for
 * too long is cut off.
 */
import { constants, type Http2ServerResponse, type ServerHttp2Stream } from "node:http2";
import { Code } from "@connectrpc/connect";
import {
  AnswerWriter,
  FrameSplitter,
  MalformedMessage,
  type Operation,
  Pacer,
  type RequestMessage,
  readRequest,
  SESSION_VERSION,
} from "../protocol/index.ts";
import { bounds, HoldfastError, type RenewAnswer, type RenewRef, type Unsubscribe } from "../store/index.ts";
import { checkMay, Forbidden, may, type Principal, verbFor } from "./access.ts";
import type { Keeper } from "./kept.ts";
import { shownTo } from "./ownership.ts";
import { renewPermitted } from "./renew-permitted.ts";
import type { SessionContext } from "./session-context.ts";
import { checkRefs, sizeOf, welcomeOf } from "./session-operations.ts";
import { UnreadFrames } from "./unread-frames.ts";

/** A session that ends well ends with 0, which is no code of an error. */
const OK = 0;

/** With more messages than this that have not been looked at, nothing is read. */
const MAX_MESSAGES = 100;

/** The most frames that come after reading has stopped. */
const MAX_UNREAD_FRAMES = 20_000;

export class ServerSession implements Keeper {
  readonly #stream: ServerHttp2Stream;
  readonly #response: Http2ServerResponse;
  readonly #context: SessionContext;
  readonly #splitter: FrameSplitter;
  readonly #unread: UnreadFrames;
  readonly #writer = new AnswerWriter();
  readonly #listening = new Map<string, Unsubscribe>();
  /** Looks can be large, so they are answered one after the other, each when the one before has been sent. */
  readonly #looks: Extract<Operation, { verb: "look" }>[] = [];
  #looking = false;
  readonly #pacer = new Pacer(
    (bytes) => this.#handle(bytes),
    () => this.#finishIfDone(),
  );
  #greeted = false;
  #inFlight = 0;
  #flushing = false;
  #leaving = false;
  #over = false;
  /** How much was written in all. */
  #written = 0;
  #slowTimer: NodeJS.Timeout | undefined;
  readonly #helloTimer: NodeJS.Timeout;

  constructor(response: Http2ServerResponse, context: SessionContext) {
    const { stream } = response;
    this.#stream = stream;
    this.#response = response;
    this.#context = context;
    this.#splitter = new FrameSplitter(context.limits.maxMessageBytes);
    const noHello = () => this.#drop("no-hello", Code.FailedPrecondition, "The client sent no hello.");
    this.#helloTimer = setTimeout(noHello, context.limits.silenceMs).unref();
    this.#unread = new UnreadFrames(stream, (count) => {
      this.#countKept();
      if (count > MAX_UNREAD_FRAMES) this.cutOff("malformed");
    });
    stream.on("data", (piece: Buffer) => this.#guard(() => this.#receive(piece)));
    stream.on("end", () => this.#guard(() => this.#finishIfDone()));
    stream.on("drain", () => this.#guard(() => this.#drained()));
    stream.on("error", () => {});
    stream.on("close", () => {
      this.#end();
      context.kept.set(this, 0);
    });
    stream.respond({ ":status": 200, "content-type": "application/grpc+proto" }, { waitForTrailers: true });
  }

  /** Ends the session with any error that `work` throws. */
  #guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    this.#context.onUnexpected(error);
    this.#drop("failed", Code.Internal, "The server failed at this session. Its log has the error.");
  }

  /** Asks the client to go elsewhere, and ends when everything has been answered. */
  leave(reason: string): void {
    if (this.#over || this.#leaving) return;
    this.#leaving = true;
    this.#writer.goodbye(reason);
    this.#flushSoon();
  }

  cutOff(reason: string): void {
    if (this.#stream.destroyed) return;
    this.#context.onDrop(reason);
    this.#end();
    this.#stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    this.#stream.destroy();
  }

  readonly #countKept = () => {
    const { writableLength, destroyed } = this.#stream;
    if (destroyed) return;
    this.#context.kept.set(this, this.#unread.keptBytes + this.#splitter.keptBytes + writableLength);
  };

  #receive(piece: Buffer): void {
    if (this.#over) return;
    this.#unread.clear();
    try {
      this.#pacer.push(this.#splitter.push(piece));
    } catch (error) {
      this.#reject(error);
    }
    this.#throttle();
  }

  /** Does what a message asks for. Returns how many operations that was. */
  readonly #handle = (bytes: Buffer): number => {
    if (this.#over) return 0;
    let done = 0;
    try {
      const message = readRequest(bytes, this.#context.limits.maxOperations);
      done = message.operations.length;
      this.#apply(message);
    } catch (error) {
      this.#reject(error);
    }
    this.#throttle();
    return done;
  };

  #reject(error: unknown): void {
    if (error instanceof HoldfastError) {
      this.#context.onError(error);
      this.#drop("token", Code.Unauthenticated, error.message);
    } else this.#drop("malformed", Code.InvalidArgument, (error as Error).message);
  }

  #apply(message: RequestMessage): void {
    if (!this.#greeted && !this.#greet(message)) return;
    const principal = this.#context.visitor.principal();
    for (const owner of message.listen) this.#listen(owner);
    for (const owner of message.unlisten) this.#unlisten(owner);
    for (const operation of message.operations) this.#perform(operation, principal);
  }

  /** Whether the first message is what it should be. */
  #greet({ hello }: RequestMessage): boolean {
    clearTimeout(this.#helloTimer);
    if (hello?.version !== SESSION_VERSION) {
      const reason = `This server speaks version ${SESSION_VERSION} of the session protocol. Use a matching version of Holdfast.`;
      this.#drop("version", Code.FailedPrecondition, reason);
      return false;
    }
    this.#greeted = true;
    this.#writer.welcome(welcomeOf(this.#context));
    this.#flushSoon();
    return true;
  }

  #listen(owner: string): void {
    if (this.#listening.has(owner)) return;
    // A client of the library has no longer name, and the server would keep it for as long as the session.
    if (Buffer.byteLength(owner) > bounds.ownerBytes) {
      throw new MalformedMessage(`The name of an owner must be at most ${bounds.ownerBytes} bytes of UTF-8.`);
    }
    if (this.#listening.size >= this.#context.limits.maxOwners) return;
    const { store, visitor } = this.#context;
    const stop = store.onGrant(owner, visitor.client, (refs) => {
      // Hints that nobody reads are not kept for them.
      if (this.#over || this.#stream.writableLength > this.#context.limits.maxBufferedBytes) return;
      for (const ref of refs) if (this.#mayHear(ref.key)) this.#writer.granted(owner, ref);
      this.#flushSoon();
    });
    this.#listening.set(owner, stop);
  }

  #mayHear(key: string): boolean {
    try {
      return may(this.#context.visitor.principal(), "acquire", key);
    } catch {
      // The token is gone. The next message ends the session.
      return false;
    }
  }

  #unlisten(owner: string): void {
    this.#listening.get(owner)?.();
    this.#listening.delete(owner);
  }

  #perform(operation: Operation, principal: Principal): void {
    const { number } = operation;
    this.#inFlight += sizeOf(operation);
    try {
      switch (operation.verb) {
        case "acquire":
          checkMay(principal, "acquire", operation.request.key, operation.request.id);
          this.#answer(
            operation,
            this.#context.store.acquire(operation.request, this.#context.visitor),
            (answer) => this.#writer.acquired(number, answer),
          );
          return;
        case "renew":
          this.#answer(operation, this.#renew(operation.refs, principal), (answers) => {
            const errors = answers.flatMap((answer) => (answer.state === "failed" ? [answer.error] : []));
            for (const error of new Set(errors)) this.#context.onError(error);
            this.#writer.renewed(number, answers);
          });
          return;
        case "release":
          checkRefs(operation.refs, principal);
          this.#answer(
            operation,
            this.#context.store.release(operation.refs, this.#context.visitor),
            (released) => this.#writer.released(number, released),
          );
          return;
        case "look":
          checkMay(
            principal,
            "read",
            "key" in operation.query ? operation.query.key : operation.query.prefix,
          );
          this.#looks.push(operation);
          this.#lookOn().catch((error: unknown) => this.#fail(error));
      }
    } catch (error) {
      this.#failed(operation, error);
    }
  }

  /** One claim that may not be renewed any more must not cost the others their leases. */
  #renew(refs: readonly RenewRef[], principal: Principal): Promise<readonly RenewAnswer[]> {
    const { store, visitor } = this.#context;
    const refusals = refs.map((ref) => {
      const verb = verbFor(ref);
      return may(principal, verb, ref.key) ? undefined : new Forbidden(principal, verb, ref.key, ref.id);
    });
    return renewPermitted(refs, refusals, (permitted) => store.renew(permitted, visitor));
  }

  async #lookOn(): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    for (let look = this.#looks.shift(); look !== undefined && !this.#over; look = this.#looks.shift()) {
      const { number, query } = look;
      try {
        const { store, visitor } = this.#context;
        const page = await store.look(query);
        const keys = page.keys.map((status) => shownTo(visitor.principal(), visitor.client, status));
        this.#writer.looked(number, { ...page, keys });
        this.#answered(look);
      } catch (error) {
        this.#failed(look, error);
      }
      this.#flush();
      if (this.#stream.writableNeedDrain && !this.#over) {
        await new Promise<void>((resolve) => {
          this.#stream.once("drain", resolve).once("close", resolve);
        });
      }
    }
    this.#looking = false;
  }

  #answer<T>(operation: Operation, answer: Promise<T>, write: (answer: T) => void): void {
    answer.then(
      (value) =>
        this.#guard(() => {
          write(value);
          this.#answered(operation);
        }),
      (error: unknown) => this.#guard(() => this.#failed(operation, error)),
    );
  }

  /** An answer has been written. */
  #answered(operation: Operation): void {
    this.#inFlight -= sizeOf(operation);
    this.#flushSoon();
  }

  #failed(operation: Operation, error: unknown): void {
    this.#context.onError(error);
    this.#writer.failed(operation.number, error);
    this.#answered(operation);
  }

  /** When the promises that are settled by now have been heard: they all have something to say. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    process.nextTick(() => this.#guard(() => this.#flush()));
  }

  #flush(): void {
    this.#flushing = false;
    if (this.#over) return;
    if (!this.#writer.isEmpty) {
      const frame = this.#writer.take();
      this.#written += frame.length;
      this.#stream.write(frame, this.#countKept);
    }
    this.#throttle();
    this.#finishIfDone();
  }

  /** Reads on only while little enough is unanswered and unread. */
  #throttle(): void {
    const { maxInFlight, maxBufferedBytes } = this.#context.limits;
    const unread = this.#stream.writableLength > maxBufferedBytes;
    const paused = unread || this.#inFlight > maxInFlight || this.#pacer.length > MAX_MESSAGES;
    if (paused !== this.#stream.isPaused()) {
      if (paused) this.#stream.pause();
      else this.#stream.resume();
    }
    this.#countKept();
    // However little lies unread: it is the client that does not get on.
    if (this.#stream.writableNeedDrain && this.#slowTimer === undefined) this.#watchReader();
  }

  /** Cuts the client off when something that was there now is still unread when its time is up. */
  #watchReader(): void {
    const writtenBefore = this.#written;
    this.#slowTimer = setTimeout(() => {
      this.#slowTimer = undefined;
      const read = this.#written - this.#stream.writableLength;
      if (read < writtenBefore) {
        this.#drop("slow-reader", Code.ResourceExhausted, "The client does not read its answers.");
      } else this.#throttle();
    }, this.#context.limits.slowReaderMs).unref();
  }

  #drained(): void {
    clearTimeout(this.#slowTimer);
    this.#slowTimer = undefined;
    this.#throttle();
  }

  /** The client has no more to say, or shall say it elsewhere, and has heard everything. */
  #finishIfDone(): void {
    if (this.#inFlight > 0 || !this.#pacer.isIdle || this.#over) return;
    if (this.#stream.readableEnded) this.#close(OK, "", this.#context.limits.slowReaderMs);
  }

  #drop(reason: string, status: number, message: string): void {
    if (this.#over) return;
    this.#context.onDrop(reason);
    this.#close(status, message);
  }

  #close(status: number, message: string, patienceMs = 1_000): void {
    const stream = this.#stream;
    this.#end();
    if (stream.destroyed) return;
    // Node sends these when the stream asks for them, at its end.
    this.#response.addTrailers({ "grpc-status": `${status}`, "grpc-message": encodeURIComponent(message) });
    // What the client still sends is not read, and what it does not read is not waited for.
    stream.resume();
    stream.end();
    setTimeout(() => stream.destroy(), patienceMs).unref();
  }

  #end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#pacer.clear();
    clearTimeout(this.#helloTimer);
    clearTimeout(this.#slowTimer);
    for (const stop of this.#listening.values()) stop();
    this.#listening.clear();
    this.#looks.length = 0;
    this.#context.onEnd();
  }
}
