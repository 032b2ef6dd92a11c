/**
 * One session with one server: a stream over a connection of its own.
 *
 * What is asked for in one turn of the event loop travels as one message. What was not answered when the stream ends is
 * rejected: nobody knows whether it was done, and asking again with the same claim is safe.
 */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  type IncomingHttpHeaders,
} from "node:http2";
import {
  type AnswerListener,
  FrameSplitter,
  Pacer,
  readAnswers,
  SESSION_PATH,
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
import { errorOfStatus, notAServer, unavailable } from "./link-errors.ts";
import type { RemoteTls } from "./options.ts";
import { Outbox } from "./outbox.ts";
import { sizeOf, sizeOfAll } from "./parts.ts";
import { SilenceWatch } from "./silence-watch.ts";

export interface LinkOptions {
  readonly url: string;
  readonly token: string | undefined;
  readonly tls: RemoteTls | undefined;
  readonly connectTimeoutMs: number;
  readonly silenceMs: number;
}

export interface LinkEvents {
  /** The server has greeted: from now on it can be asked. */
  onOpen(link: Link, welcome: session.Welcome): void;
  /** The server wants to be left. What was asked is still answered, nothing more is to be. */
  onGoodbye(link: Link): void;
  onGranted(owner: string, ref: GrantRef): void;
  /** A claim was asked for, and this is the answer; whoever asked hears it after that. */
  onAcquired(request: ClaimRequest, answer: AcquireAnswer): void;
  /** It has ended, whether it had opened or not. Called once. */
  onClosed(link: Link, error: HoldfastError): void;
}

interface Pending {
  readonly verb: "acquire" | "renew" | "release" | "look";
  /** The message that it went out in. */
  readonly message: number;
  /** What was asked for, if that was a claim. */
  readonly request: ClaimRequest | undefined;
  readonly resolve: (answer: never) => void;
  readonly reject: (error: unknown) => void;
}

/** The longest answer that is read. The server bounds what it sends by what was asked for. */
const MAX_ANSWER_BYTES = 268_435_456;

/** At most how long a look is in a message: a key or a prefix, and a cursor. */
const LOOK_BYTES = 4_096;

/** How much the server may send ahead of what is read here. */
const WINDOW_BYTES = 4_194_304;

export class Link implements AnswerListener {
  readonly url: string;
  readonly #events: LinkEvents;
  readonly #connection: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  readonly #splitter = new FrameSplitter(MAX_ANSWER_BYTES);
  readonly #pacer = new Pacer((bytes) => this.#handle(bytes));
  readonly #outbox: Outbox;
  /** What has not been answered, by its number less one. */
  readonly #pending: (Pending | undefined)[] = [];
  readonly #free: number[] = [];
  #unanswered = 0;
  /** The latest message of which something was answered. */
  #answeredMessage = 0;
  #open = false;
  #leaving = false;
  #closed = false;
  readonly #silence: SilenceWatch;
  readonly #connectTimer: NodeJS.Timeout;

  constructor(options: LinkOptions, agent: string, events: LinkEvents) {
    this.url = options.url;
    this.#events = events;
    this.#connection = connect(options.url, {
      settings: { initialWindowSize: WINDOW_BYTES, enablePush: false },
      ...options.tls,
    });
    this.#connection.on("error", (error) => this.#fail(error));
    this.#connection.on("close", () => this.#fail(new Error("The connection was closed.")));
    this.#connection.on("connect", () => this.#connection.setLocalWindowSize(WINDOW_BYTES));
    this.#connection.on("goaway", () => this.#goodbye());
    this.#stream = this.#connection.request({
      ":method": "POST",
      ":path": SESSION_PATH,
      "content-type": "application/grpc+proto",
      te: "trailers",
      ...(options.token !== undefined && { authorization: `Bearer ${options.token}` }),
    });
    this.#stream.on("response", (headers) => this.#responded(headers));
    this.#stream.on("trailers", (headers) => this.#ended(headers));
    this.#stream.on("data", (piece: Buffer) => this.#receive(piece));
    this.#stream.on("error", (error) => this.#fail(error));
    this.#stream.on("close", () => this.#fail(new Error("The stream was closed.")));
    this.#connectTimer = setTimeout(
      () => this.#fail(new Error(`The server did not answer within ${options.connectTimeoutMs} ms.`)),
      options.connectTimeoutMs,
    );
    this.#silence = new SilenceWatch({
      silenceMs: options.silenceMs,
      isAwaiting: () => this.#unanswered > 0,
      ping: (answered) => void this.#connection.ping(answered),
      onSilence: (error) => this.#fail(error),
    });
    this.#outbox = new Outbox(this.#stream, () =>
      this.#fail(new Error("The server does not read requests.")),
    );
    this.#outbox.writer.hello(SESSION_VERSION, agent);
    this.#outbox.flush();
  }

  /** Whether it can be asked. */
  get isOpen(): boolean {
    return this.#open && !this.#leaving && !this.#closed;
  }

  acquireClaim(request: ClaimRequest): Promise<AcquireAnswer> {
    return new Promise((resolve, reject) => {
      const { owner, info, application } = request;
      const bytes = sizeOf(request) + 3 * (owner.length + info.length + application.length);
      const number = this.#enlist("acquire", bytes, 1, resolve, reject, request);
      this.#outbox.writer.acquire(number, request);
    });
  }

  /** What cannot be answered of a list that takes several messages fails by itself, as within one. */
  async renewClaims(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    const parts = this.#outbox.partsOf(refs);
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

  /** Not an async function: every lock cycle ends with it. */
  releaseClaims(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    const parts = this.#outbox.partsOf(refs);
    if (parts.length === 1) return this.#releasePart(refs);
    return Promise.all(parts.map((part) => this.#releasePart(part))).then((released) => released.flat());
  }

  lookAt(query: LookQuery): Promise<LookPage> {
    return new Promise((resolve, reject) => {
      const number = this.#enlist("look", LOOK_BYTES, 1, resolve, reject);
      this.#outbox.writer.look(number, query);
    });
  }

  listen(owner: string): void {
    this.#outbox.makeRoom(3 * owner.length, 0);
    this.#outbox.writer.listen(owner);
  }

  unlisten(owner: string): void {
    this.#outbox.makeRoom(3 * owner.length, 0);
    this.#outbox.writer.unlisten(owner);
    // A message's listens are applied before its unlistens, so whoever listens anew must do so in the next one.
    this.#outbox.flush();
  }

  /** Asks nothing more, and ends when everything has been answered, or when `patienceMs` are over. */
  leave(patienceMs: number): void {
    this.#leaving = true;
    if (this.#unanswered === 0) {
      this.#hangUp();
      return;
    }
    setTimeout(() => this.#fail(new Error("The client has left the server.")), patienceMs).unref();
  }

  /** Ends it at once. */
  close(error: HoldfastError): void {
    this.#fail(error);
  }

  // What the server says.

  welcome(welcome: session.Welcome): void {
    if (this.#open) return;
    clearTimeout(this.#connectTimer);
    this.#open = true;
    this.#outbox.allow(welcome.maxMessageBytes, welcome.maxOperations);
    this.#keepProcessAlive();
    this.#events.onOpen(this, welcome);
  }

  goodbye(): void {
    this.#goodbye();
  }

  acquired(number: number, answer: AcquireAnswer): void {
    const pending = this.#settle(number, "acquire");
    if (pending?.request !== undefined) this.#events.onAcquired(pending.request, answer);
    pending?.resolve(answer as never);
  }

  renewed(number: number, answers: readonly RenewAnswer[]): void {
    this.#settle(number, "renew")?.resolve(answers as never);
  }

  released(number: number, released: readonly boolean[]): void {
    this.#settle(number, "release")?.resolve(released as never);
  }

  looked(number: number, page: LookPage): void {
    this.#settle(number, "look")?.resolve(page as never);
  }

  failed(number: number, error: HoldfastError): void {
    this.#settle(number, undefined)?.reject(error);
  }

  granted(owner: string, ref: GrantRef): void {
    this.#events.onGranted(owner, ref);
  }

  // Asking.

  /** Takes note of an operation, and makes room for it in the message. Returns its number. */
  #enlist(
    verb: Pending["verb"],
    bytes: number,
    operations: number,
    resolve: (answer: never) => void,
    reject: (error: unknown) => void,
    request?: ClaimRequest,
  ): number {
    if (this.#closed) throw unavailable(this.url, new Error("The session has just ended."));
    this.#outbox.makeRoom(bytes, operations);
    const slot = this.#free.pop() ?? this.#pending.length;
    this.#pending[slot] = { verb, message: this.#outbox.number, request, resolve, reject };
    this.#unanswered++;
    if (this.#unanswered === 1) this.#keepProcessAlive();
    return slot + 1;
  }

  #renewPart(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    return new Promise((resolve, reject) => {
      const number = this.#enlist("renew", sizeOfAll(refs), refs.length, resolve, reject);
      this.#outbox.writer.renew(number, refs);
    });
  }

  #releasePart(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    return new Promise((resolve, reject) => {
      const number = this.#enlist("release", sizeOfAll(refs), refs.length, resolve, reject);
      this.#outbox.writer.release(number, refs);
    });
  }

  // Receiving.

  #receive(piece: Buffer): void {
    if (this.#closed) return;
    this.#silence.heard();
    try {
      this.#pacer.push(this.#splitter.push(piece));
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  /** Tells the answers of a message. Returns how many there were. */
  #handle(bytes: Buffer): number {
    if (this.#closed) return 0;
    const before = this.#unanswered;
    try {
      readAnswers(bytes, this);
    } catch (error) {
      this.#fail(error as Error);
    }
    this.#outbox.heard(this.#answeredMessage);
    if (this.#leaving && this.#unanswered === 0) this.#hangUp();
    return before - this.#unanswered;
  }

  #settle(number: number, verb: Pending["verb"] | undefined): Pending | undefined {
    const pending = this.#pending[number - 1];
    if (pending === undefined || (verb !== undefined && pending.verb !== verb)) {
      throw new Error("The server gave an answer without a request.");
    }
    if (pending.message > this.#answeredMessage) this.#answeredMessage = pending.message;
    this.#pending[number - 1] = undefined;
    this.#free.push(number - 1);
    this.#unanswered--;
    if (this.#unanswered === 0) this.#keepProcessAlive();
    return pending;
  }

  #responded(headers: IncomingHttpHeaders & { readonly ":status"?: number | undefined }): void {
    const status = headers[":status"];
    if (status !== 200) this.#fail(notAServer(this.url, `its HTTP status was ${status}`));
    else if (headers["grpc-status"] !== undefined) this.#ended(headers);
  }

  #ended(headers: IncomingHttpHeaders): void {
    this.#fail(errorOfStatus(this.url, headers));
  }

  #goodbye(): void {
    if (this.#leaving || this.#closed) return;
    this.#leaving = true;
    this.#outbox.flush();
    this.#events.onGoodbye(this);
    if (this.#unanswered === 0) this.#hangUp();
  }

  /** Everything has been said: the server hears that, and closes. */
  #hangUp(): void {
    if (this.#closed) return;
    this.#outbox.flush();
    this.#stream.end();
    this.#fail(new Error("The client has left the session."), 1_000);
  }

  // The end.

  #fail(cause: Error, lingerMs = 0): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#connectTimer);
    this.#silence.stop();
    const error = cause instanceof HoldfastError ? cause : unavailable(this.url, cause);
    for (const pending of this.#pending) pending?.reject(error);
    this.#pending.length = 0;
    this.#outbox.close();
    this.#connection.unref();
    if (lingerMs === 0) this.#connection.destroy();
    else {
      this.#connection.close();
      setTimeout(() => this.#connection.destroy(), lingerMs).unref();
    }
    this.#events.onClosed(this, error);
  }

  /** A connection on which nothing is awaited must not keep a process from ending. */
  #keepProcessAlive(): void {
    if (this.#closed) return;
    if (this.#unanswered > 0 || !this.#open) this.#connection.ref();
    else this.#connection.unref();
  }
}
