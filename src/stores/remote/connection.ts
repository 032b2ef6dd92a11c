/**
 * A connection to one server, with one session.
 *
 * Requests of one turn of the event loop share a message. When the connection ends, unanswered requests are rejected: the server
 * may have performed them, and repeating them with the same claim is safe.
 */
import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders } from "node:http2";
import {
  type AnswerListener,
  FrameSplitter,
  MessageQueue,
  readAnswers,
  SESSION_VERSION,
  type session,
} from "../../protocol/index.ts";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  commonFailure,
  type GrantRef,
  HoldfastError,
  type LookPage,
  type LookQuery,
  type RenewAnswer,
  type RenewRef,
} from "../../store/index.ts";
import { errorOfStatus, notAServer, unavailable } from "./connection-errors.ts";
import { MessageBatcher, sizeOf, sizeOfAll } from "./message-batcher.ts";
import { type PendingRequest, PendingRequests } from "./pending-requests.ts";
import { type ConnectionOptions, openSessionStream } from "./session-stream.ts";
import { SilenceWatch } from "./silence-watch.ts";

export interface ConnectionEvents {
  /** The server is ready for requests. */
  onOpen(connection: Connection, welcome: session.Welcome): void;
  /** The server stops. It answers open requests, and accepts no more. */
  onGoodbye(connection: Connection): void;
  onGranted(owner: string, ref: GrantRef): void;
  /** Called before the promise of the request resolves. */
  onAcquired(request: ClaimRequest, answer: AcquireAnswer): void;
  /** Called once, also if the connection never opened. */
  onClosed(connection: Connection, error: HoldfastError): void;
}

/** The longest accepted answer. The server bounds answers by the requests. */
const MAX_ANSWER_BYTES = 268_435_456;

/** The longest look in a message: a key or a prefix, and a cursor. */
const LOOK_BYTES = 4_096;

export class Connection implements AnswerListener {
  readonly url: string;
  readonly #events: ConnectionEvents;
  readonly #connection: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  readonly #splitter = new FrameSplitter(MAX_ANSWER_BYTES);
  readonly #queue = new MessageQueue((bytes) => this.#handle(bytes));
  readonly #batcher: MessageBatcher;
  readonly #pending = new PendingRequests();
  #open = false;
  #leaving = false;
  #closed = false;
  readonly #silence: SilenceWatch;
  readonly #connectTimer: NodeJS.Timeout;

  constructor(options: ConnectionOptions, agent: string, events: ConnectionEvents) {
    this.url = options.url;
    this.#events = events;
    const { connection, stream } = openSessionStream(options);
    this.#connection = connection;
    this.#stream = stream;
    connection.on("error", (error) => this.#fail(error));
    connection.on("close", () => this.#fail(new Error("The connection was closed.")));
    connection.on("goaway", () => this.goodbye());
    stream.on("response", (headers) => this.#responded(headers));
    stream.on("trailers", (headers) => this.#fail(errorOfStatus(this.url, headers)));
    stream.on("data", (piece: Buffer) => this.#receive(piece));
    stream.on("error", (error) => this.#fail(error));
    stream.on("close", () => this.#fail(new Error("The stream was closed.")));
    this.#connectTimer = setTimeout(
      () => this.#fail(new Error(`The server did not answer within ${options.connectTimeoutMs} ms.`)),
      options.connectTimeoutMs,
    );
    this.#silence = new SilenceWatch({
      silenceMs: options.silenceMs,
      isAwaiting: () => this.#pending.count > 0,
      ping: (answered) => void this.#connection.ping(answered),
      onSilence: (error) => this.#fail(error),
    });
    this.#batcher = new MessageBatcher(this.#stream, () =>
      this.#fail(new Error("The server does not read requests.")),
    );
    this.#batcher.writer.hello(SESSION_VERSION, agent);
    this.#batcher.flush();
  }

  acquireClaim(request: ClaimRequest): Promise<AcquireAnswer> {
    const { owner, info, application } = request;
    const bytes = sizeOf(request) + 3 * (owner.length + info.length + application.length);
    const write = (number: number) => this.#batcher.writer.acquire(number, request);
    return this.#request("acquire", bytes, 1, write, request);
  }

  /** If a list needs several messages, a failure of one fails only the claims in it. */
  async renewClaims(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    const parts = this.#batcher.partsOf(refs);
    if (parts.length === 1) return this.#renewPart(refs);
    const settled = await Promise.allSettled(parts.map((part) => this.#renewPart(part)));
    const failure = commonFailure(settled);
    if (failure !== undefined) throw failure;
    return settled.flatMap((each, index): readonly RenewAnswer[] =>
      each.status === "fulfilled"
        ? each.value
        : (parts[index] ?? []).map(() => ({ state: "failed", error: each.reason })),
    );
  }

  /** Not an async function, for speed: every lock cycle calls it. */
  releaseClaims(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    const parts = this.#batcher.partsOf(refs);
    if (parts.length === 1) return this.#releasePart(refs);
    return Promise.all(parts.map((part) => this.#releasePart(part))).then((released) => released.flat());
  }

  lookAt(query: LookQuery): Promise<LookPage> {
    return this.#request("look", LOOK_BYTES, 1, (number) => this.#batcher.writer.look(number, query));
  }

  listen(owner: string): void {
    this.#batcher.makeRoom(3 * owner.length, 0);
    this.#batcher.writer.listen(owner);
  }

  unlisten(owner: string): void {
    this.#batcher.makeRoom(3 * owner.length, 0);
    this.#batcher.writer.unlisten(owner);
    // A message applies `listen` before `unlisten`, so a new `listen` must be in the next message.
    this.#batcher.flush();
  }

  /** Ends when all requests are answered, or after `timeoutMs`. */
  leave(timeoutMs: number): void {
    this.#leaving = true;
    if (this.#pending.count === 0) {
      this.#hangUp();
      return;
    }
    setTimeout(() => this.#fail(new Error("The client has left the server.")), timeoutMs).unref();
  }

  close(error: HoldfastError): void {
    this.#fail(error);
  }

  // AnswerListener

  welcome(welcome: session.Welcome): void {
    if (this.#open) return;
    clearTimeout(this.#connectTimer);
    this.#open = true;
    this.#batcher.allow(welcome.maxMessageBytes, welcome.maxOperations);
    this.#updateRef();
    this.#events.onOpen(this, welcome);
  }

  goodbye(): void {
    if (this.#leaving || this.#closed) return;
    this.#leaving = true;
    this.#batcher.flush();
    this.#events.onGoodbye(this);
    if (this.#pending.count === 0) this.#hangUp();
  }

  acquired(number: number, answer: AcquireAnswer): void {
    const pending = this.#pending.take(number, "acquire");
    if (pending.request !== undefined) this.#events.onAcquired(pending.request, answer);
    pending.resolve(answer as never);
  }

  renewed(number: number, answers: readonly RenewAnswer[]): void {
    this.#pending.take(number, "renew").resolve(answers as never);
  }

  released(number: number, released: readonly boolean[]): void {
    this.#pending.take(number, "release").resolve(released as never);
  }

  looked(number: number, page: LookPage): void {
    this.#pending.take(number, "look").resolve(page as never);
  }

  failed(number: number, error: HoldfastError): void {
    this.#pending.take(number, undefined).reject(error);
  }

  granted(owner: string, ref: GrantRef): void {
    this.#events.onGranted(owner, ref);
  }

  /** Adds a request of this size to the present message, or to the next one if it has no room. */
  #request<T>(
    verb: PendingRequest["verb"],
    bytes: number,
    operations: number,
    write: (number: number) => void,
    request?: ClaimRequest,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw unavailable(this.url, new Error("The session has just ended."));
      this.#batcher.makeRoom(bytes, operations);
      const number = this.#pending.add({ verb, message: this.#batcher.number, request, resolve, reject });
      if (this.#pending.count === 1) this.#updateRef();
      write(number);
    });
  }

  #renewPart(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    const write = (number: number) => this.#batcher.writer.renew(number, refs);
    return this.#request("renew", sizeOfAll(refs), refs.length, write);
  }

  #releasePart(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    const write = (number: number) => this.#batcher.writer.release(number, refs);
    return this.#request("release", sizeOfAll(refs), refs.length, write);
  }

  #receive(piece: Buffer): void {
    if (this.#closed) return;
    this.#silence.heard();
    try {
      this.#queue.push(this.#splitter.push(piece));
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  /** Settles the answers of a message. Returns their number. */
  #handle(bytes: Buffer): number {
    if (this.#closed) return 0;
    const before = this.#pending.count;
    try {
      readAnswers(bytes, this);
    } catch (error) {
      this.#fail(error as Error);
    }
    this.#batcher.answered(this.#pending.answeredMessage);
    if (this.#pending.count === 0) this.#updateRef();
    if (this.#leaving && this.#pending.count === 0) this.#hangUp();
    return before - this.#pending.count;
  }

  #responded(headers: IncomingHttpHeaders & { readonly ":status"?: number | undefined }): void {
    const status = headers[":status"];
    if (status !== 200) this.#fail(notAServer(this.url, `its HTTP status was ${status}`));
    else if (headers["grpc-status"] !== undefined) this.#fail(errorOfStatus(this.url, headers));
  }

  /** Ends the session after the last answer. */
  #hangUp(): void {
    if (this.#closed) return;
    this.#batcher.flush();
    this.#stream.end();
    this.#fail(new Error("The client has left the session."), 1_000);
  }

  #fail(cause: Error, lingerMs = 0): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#connectTimer);
    this.#silence.stop();
    const error = cause instanceof HoldfastError ? cause : unavailable(this.url, cause);
    this.#pending.rejectAll(error);
    this.#batcher.close();
    this.#connection.unref();
    if (lingerMs === 0) this.#connection.destroy();
    else {
      this.#connection.close();
      setTimeout(() => this.#connection.destroy(), lingerMs).unref();
    }
    this.#events.onClosed(this, error);
  }

  /** Keeps the process alive only while an answer is pending. */
  #updateRef(): void {
    if (this.#closed) return;
    if (this.#pending.count > 0 || !this.#open) this.#connection.ref();
    else this.#connection.unref();
  }
}
