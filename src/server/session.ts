/** A session: performs the operations of a client, and writes answers and pushed grants, one message per turn of the event loop. */
import type { Http2ServerResponse } from "node:http2";
import { Code } from "@connectrpc/connect";
import {
  AnswerWriter,
  MalformedMessage,
  type Operation,
  type RequestMessage,
  readRequest,
  SESSION_VERSION,
  wireDurabilities,
} from "../protocol/index.ts";
import { bounds, HoldfastError, type Unsubscribe } from "../store/index.ts";
import { checkMay, Forbidden, may, type Principal, verbFor } from "./access.ts";
import type { Caller } from "./callers.ts";
import type { ServerContext } from "./context.ts";
import { shownTo } from "./ownership.ts";
import { type SessionHandler, SessionStream } from "./session-stream.ts";

/** The gRPC status of a session that ended without an error. */
const OK = 0;

type Look = Extract<Operation, { verb: "look" }>;

export class ServerSession implements SessionHandler {
  readonly #context: ServerContext;
  readonly #caller: Caller;
  readonly #onClosed: () => void;
  readonly #stream: SessionStream;
  readonly #writer = new AnswerWriter();
  readonly #listening = new Map<string, Unsubscribe>();
  /** Answered one at a time, each when the previous answer was sent, because they can be large. */
  readonly #looks: Look[] = [];
  #isLooking = false;
  #hasGreeted = false;
  #isFlushing = false;
  #isLeaving = false;
  readonly #helloTimer: NodeJS.Timeout;

  constructor(response: Http2ServerResponse, context: ServerContext, caller: Caller, onClosed: () => void) {
    this.#context = context;
    this.#caller = caller;
    this.#onClosed = onClosed;
    const noHello = () => this.#drop("no-hello", Code.FailedPrecondition, "The client sent no hello.");
    this.#helloTimer = setTimeout(noHello, context.limits.silenceMs).unref();
    this.#stream = new SessionStream(response, context, this);
  }

  /** Asks the client to use another server. The session ends when everything is answered. */
  leave(reason: string): void {
    if (this.#stream.isOver || this.#isLeaving) return;
    this.#isLeaving = true;
    this.#writer.goodbye(reason);
    this.#flushSoon();
  }

  handle(message: Buffer): number {
    try {
      const request = readRequest(message, this.#context.limits.maxOperations);
      if (this.#hasGreeted || this.#greet(request)) this.#apply(request);
      return request.operations.length;
    } catch (error) {
      this.malformed(error);
      return 0;
    }
  }

  finished(): void {
    this.#stream.finish(OK, "", this.#context.limits.slowReaderMs);
  }

  malformed(error: unknown): void {
    if (error instanceof HoldfastError) {
      this.#context.errors.failed(error, this.#caller);
      this.#drop("token", Code.Unauthenticated, error.message);
    } else this.#drop("malformed", Code.InvalidArgument, (error as Error).message);
  }

  slow(): void {
    this.#drop("slow-reader", Code.ResourceExhausted, "The client does not read its answers.");
  }

  failed(error: unknown): void {
    this.#context.errors.unexpected(error);
    this.#drop("failed", Code.Internal, "The server failed at this session. Its log has the error.");
  }

  closed(): void {
    clearTimeout(this.#helloTimer);
    for (const stop of this.#listening.values()) stop();
    this.#listening.clear();
    this.#looks.length = 0;
    this.#onClosed();
  }

  /** Ends the session if `work` throws. */
  #guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.failed(error);
    }
  }

  #drop(reason: string, status: number, message: string): void {
    if (this.#stream.isOver) return;
    this.#context.errors.dropped(reason);
    this.#stream.finish(status, message);
  }

  /** Checks the first message. Returns whether the session goes on. */
  #greet({ hello }: RequestMessage): boolean {
    clearTimeout(this.#helloTimer);
    if (hello?.version !== SESSION_VERSION) {
      const reason = `This server speaks version ${SESSION_VERSION} of the session protocol. Use a matching version of Holdfast.`;
      this.#drop("version", Code.FailedPrecondition, reason);
      return false;
    }
    this.#hasGreeted = true;
    const { name, durability, counts } = this.#context.store.store;
    const { maxMessageBytes, maxOperations } = this.#context.limits;
    const store = { store: name, durability: wireDurabilities[durability], counts };
    this.#writer.welcome({ version: SESSION_VERSION, ...store, maxMessageBytes, maxOperations });
    this.#flushSoon();
    return true;
  }

  #apply({ listen, unlisten, operations }: RequestMessage): void {
    const principal = this.#caller.principal();
    for (const owner of listen) this.#listen(owner);
    for (const owner of unlisten) {
      this.#listening.get(owner)?.();
      this.#listening.delete(owner);
    }
    for (const operation of operations) this.#perform(operation, principal);
  }

  #listen(owner: string): void {
    if (this.#listening.has(owner)) return;
    if (Buffer.byteLength(owner) > bounds.ownerBytes) {
      throw new MalformedMessage(`The name of an owner must be at most ${bounds.ownerBytes} bytes of UTF-8.`);
    }
    if (this.#listening.size >= this.#context.limits.maxOwners) return;
    const stop = this.#context.store.onGrant(owner, this.#caller.client, (refs) => {
      // Grants are hints. They are dropped while the client does not read.
      if (this.#stream.isOver || this.#stream.isFull) return;
      for (const ref of refs) if (this.#mayHear(ref.key)) this.#writer.granted(owner, ref);
      this.#flushSoon();
    });
    this.#listening.set(owner, stop);
  }

  #mayHear(key: string): boolean {
    try {
      return may(this.#caller.principal(), "acquire", key);
    } catch {
      // The token was removed. The next message ends the session.
      return false;
    }
  }

  #perform(operation: Operation, principal: Principal): void {
    const { store } = this.#context;
    const { number } = operation;
    this.#stream.inFlight += sizeOf(operation);
    try {
      switch (operation.verb) {
        case "acquire": {
          const { request } = operation;
          checkMay(principal, "acquire", request.key, request.id);
          this.#answer(operation, store.acquire(request, this.#caller), (answer) =>
            this.#writer.acquired(number, answer),
          );
          return;
        }
        case "renew": {
          const refusalOf = (ref: { key: string; id: string; token?: string }) => {
            const verb = verbFor(ref);
            return may(principal, verb, ref.key)
              ? undefined
              : new Forbidden(principal, verb, ref.key, ref.id);
          };
          this.#answer(operation, store.renew(operation.refs, this.#caller, refusalOf), (answers) => {
            const errors = answers.flatMap((answer) => (answer.state === "failed" ? [answer.error] : []));
            for (const error of new Set(errors)) this.#context.errors.failed(error, this.#caller);
            this.#writer.renewed(number, answers);
          });
          return;
        }
        case "release":
          for (const ref of operation.refs) checkMay(principal, verbFor(ref), ref.key, ref.id);
          this.#answer(operation, store.release(operation.refs, this.#caller), (released) =>
            this.#writer.released(number, released),
          );
          return;
        case "look": {
          const { query } = operation;
          checkMay(principal, "read", "key" in query ? query.key : query.prefix);
          this.#looks.push(operation);
          this.#answerLooks().catch((error: unknown) => this.failed(error));
        }
      }
    } catch (error) {
      this.#fail(operation, error);
    }
  }

  async #answerLooks(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    for (let look = this.#looks.shift(); look !== undefined; look = this.#looks.shift()) {
      try {
        const page = await this.#context.store.look(look.query);
        const keys = page.keys.map((status) =>
          shownTo(this.#caller.principal(), this.#caller.client, status),
        );
        this.#writer.looked(look.number, { ...page, keys });
        this.#answered(look);
      } catch (error) {
        this.#fail(look, error);
      }
      this.#flush();
      await this.#stream.drained();
    }
    this.#isLooking = false;
  }

  #answer<T>(operation: Operation, answer: Promise<T>, write: (answer: T) => void): void {
    answer.then(
      (value) =>
        this.#guard(() => {
          write(value);
          this.#answered(operation);
        }),
      (error: unknown) => this.#guard(() => this.#fail(operation, error)),
    );
  }

  #answered(operation: Operation): void {
    this.#stream.inFlight -= sizeOf(operation);
    this.#flushSoon();
  }

  #fail(operation: Operation, error: unknown): void {
    this.#context.errors.failed(error, this.#caller);
    this.#writer.failed(operation.number, error);
    this.#answered(operation);
  }

  /** Writes after the callbacks of all promises that are settled now, so that their answers share a message. */
  #flushSoon(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    process.nextTick(() => this.#guard(() => this.#flush()));
  }

  #flush(): void {
    this.#isFlushing = false;
    if (this.#stream.isOver) return;
    if (!this.#writer.isEmpty) this.#stream.write(this.#writer.take());
    this.#stream.throttle();
    this.#stream.finishIfDone();
  }
}

/** The weight of an operation among the unanswered ones: its memory grows with its references. */
function sizeOf(operation: Operation): number {
  const { verb } = operation;
  return verb === "renew" || verb === "release" ? Math.ceil((operation.refs.length + 1) / 10) : 1;
}
