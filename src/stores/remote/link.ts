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
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  type GrantRef,
  HoldfastError,
  type LookPage,
  type LookQuery,
  type RenewAnswer,
  type RenewRef,
} from "../../core/index.ts";
import {
  type AnswerListener,
  FrameSplitter,
  Pacer,
  RequestWriter,
  readAnswers,
  SESSION_PATH,
  SESSION_VERSION,
  type session,
} from "../../protocol/index.ts";
import { errorOfStatus, notAServer, unavailable } from "./link-errors.ts";
import type { RemoteTls } from "./options.ts";
import { Outbox } from "./outbox.ts";
import { inParts, sizeOf, sizeOfAll } from "./parts.ts";
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
  /** It has ended, whether it had opened or not. Called once. */
  onClosed(link: Link, error: HoldfastError): void;
}

interface Pending {
  readonly verb: "acquire" | "renew" | "release" | "look";
  readonly resolve: (answer: never) => void;
  readonly reject: (error: unknown) => void;
}

/** The longest answer that is read. The server bounds what it sends by what was asked for. */
const MAX_ANSWER_BYTES = 268_435_456;

/** How much the server may send ahead of what is read here. */
const WINDOW_BYTES = 4_194_304;

/** From how many operations in one turn of the event loop on two messages are made of them. */
const HALVED_OPERATIONS = 32;

/** Room for what a message holds besides operations. */
const MESSAGE_SLACK_BYTES = 64;

export class Link implements AnswerListener {
  readonly url: string;
  readonly #events: LinkEvents;
  readonly #connection: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  readonly #splitter = new FrameSplitter(MAX_ANSWER_BYTES);
  readonly #pacer = new Pacer((bytes) => this.#handle(bytes));
  readonly #writer = new RequestWriter();
  /** What has not been answered, by its number less one. */
  readonly #pending: (Pending | undefined)[] = [];
  readonly #free: number[] = [];
  #unanswered = 0;
  /** How many operations are in the message that is being made, and how many were asked in this turn of the event loop. */
  #asked = 0;
  #turn = 0;
  /** After how many operations a message is sent although there will be more. */
  #half = Number.POSITIVE_INFINITY;
  #flushing = false;
  readonly #outbox: Outbox;
  #maxMessageBytes = 1_024;
  #maxOperations = 1;
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
    this.#outbox = new Outbox(this.#stream, (error) => this.#fail(error));
    this.#connectTimer = setTimeout(
      () => this.#fail(new Error(`No answer within ${options.connectTimeoutMs} ms.`)),
      options.connectTimeoutMs,
    );
    this.#silence = new SilenceWatch({
      silenceMs: options.silenceMs,
      isAwaiting: () => this.#unanswered > 0,
      ping: (answered) => void this.#connection.ping(answered),
      onSilence: (error) => this.#fail(error),
    });
    this.#writer.hello(SESSION_VERSION, agent);
    this.#outbox.send(this.#writer.take());
  }

  /** Whether it can be asked. */
  get isOpen(): boolean {
    return this.#open && !this.#leaving && !this.#closed;
  }

  acquireClaim(request: ClaimRequest): Promise<AcquireAnswer> {
    return new Promise((resolve, reject) => {
      const number = this.#enlist("acquire", resolve, reject);
      this.#makeRoom(
        sizeOf(request) + 3 * (request.owner.length + request.info.length + request.application.length),
      );
      this.#writer.acquire(number, request);
    });
  }

  renewClaims(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    return this.#inParts(refs, (part) => {
      return new Promise((resolve, reject) => {
        const number = this.#enlist("renew", resolve, reject);
        this.#makeRoom(sizeOfAll(part), part.length);
        this.#writer.renew(number, part);
      });
    });
  }

  releaseClaims(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    return this.#inParts(refs, (part) => {
      return new Promise((resolve, reject) => {
        const number = this.#enlist("release", resolve, reject);
        this.#makeRoom(sizeOfAll(part), part.length);
        this.#writer.release(number, part);
      });
    });
  }

  lookAt(query: LookQuery): Promise<LookPage> {
    return new Promise((resolve, reject) => {
      const number = this.#enlist("look", resolve, reject);
      this.#makeRoom(4_096);
      this.#writer.look(number, query);
    });
  }

  listen(owner: string): void {
    this.#makeRoom(3 * owner.length);
    this.#writer.listen(owner);
    this.#flushSoon();
  }

  unlisten(owner: string): void {
    this.#makeRoom(3 * owner.length);
    this.#writer.unlisten(owner);
    // A message's listens are applied before its unlistens, so whoever listens anew must do so in the next one.
    this.#flush();
  }

  /** Asks nothing more, and ends when everything has been answered, or when `patienceMs` are over. */
  leave(patienceMs: number): void {
    this.#leaving = true;
    if (this.#unanswered === 0) this.#hangUp();
    else setTimeout(() => this.#fail(new Error("The server was left.")), patienceMs).unref();
  }

  close(error: HoldfastError): void {
    this.#fail(error);
  }

  // What the server says.

  welcome(welcome: session.Welcome): void {
    if (this.#open) return;
    clearTimeout(this.#connectTimer);
    this.#open = true;
    this.#maxMessageBytes = welcome.maxMessageBytes;
    this.#maxOperations = welcome.maxOperations;
    this.#keepProcessAlive();
    this.#events.onOpen(this, welcome);
  }

  goodbye(): void {
    this.#goodbye();
  }

  acquired(number: number, answer: AcquireAnswer): void {
    this.#settle(number, "acquire")?.resolve(answer as never);
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

  // Sending.

  #enlist(verb: Pending["verb"], resolve: (answer: never) => void, reject: (error: unknown) => void): number {
    if (this.#closed) throw unavailable(this.url, new Error("The session has just ended."));
    const slot = this.#free.pop() ?? this.#pending.length;
    this.#pending[slot] = { verb, resolve, reject };
    // Something is under way already, which the server works on meanwhile.
    if (this.#unanswered > 0 && this.#turn === 0) this.#half = Number.POSITIVE_INFINITY;
    this.#unanswered++;
    if (this.#unanswered === 1) this.#keepProcessAlive();
    this.#flushSoon();
    return slot + 1;
  }

  /** Sends what there is when something of this size does not fit in with it. */
  #makeRoom(bytes: number, operations = 1): void {
    const full =
      this.#writer.bytes + bytes + MESSAGE_SLACK_BYTES > this.#maxMessageBytes ||
      this.#asked + operations > this.#maxOperations;
    if ((full && !this.#writer.isEmpty) || this.#asked === this.#half) this.#flush();
    this.#asked += operations;
    this.#turn += operations;
  }

  #inParts<R extends ClaimRef, T>(
    refs: readonly R[],
    ask: (part: readonly R[]) => Promise<readonly T[]>,
  ): Promise<readonly T[]> {
    const maxRefs = Math.max(1, Math.floor(this.#maxOperations / 2));
    return inParts(refs, maxRefs, this.#maxMessageBytes / 2, ask);
  }

  /** At the end of the present callback: answers that came in one message bring their next questions in one, too. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    process.nextTick(this.#flushNow);
  }

  readonly #flushNow = () => {
    this.#flushing = false;
    this.#flush();
    this.#halveNext();
  };

  /**
   * When everything has been answered, the next questions go out as two messages, so that the server works on one while this
   * process does on the other. Their answers come one after the other, and so do the questions after those. As many are
   * expected as there were this time.
   */
  #halveNext(): void {
    this.#half = this.#turn >= HALVED_OPERATIONS ? Math.ceil(this.#turn / 2) : Number.POSITIVE_INFINITY;
    this.#turn = 0;
  }

  #flush(): void {
    this.#asked = 0;
    if (this.#writer.isEmpty || this.#closed) return;
    this.#outbox.send(this.#writer.take());
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
    if (this.#leaving && this.#unanswered === 0) this.#hangUp();
    return before - this.#unanswered;
  }

  #settle(number: number, verb: Pending["verb"] | undefined): Pending | undefined {
    const pending = this.#pending[number - 1];
    if (pending === undefined || (verb !== undefined && pending.verb !== verb)) {
      throw new Error("The server answered what was not asked.");
    }
    this.#pending[number - 1] = undefined;
    this.#free.push(number - 1);
    this.#unanswered--;
    if (this.#unanswered === 0) this.#keepProcessAlive();
    return pending;
  }

  #responded(headers: IncomingHttpHeaders & { readonly ":status"?: number | undefined }): void {
    const status = headers[":status"];
    if (status !== 200) this.#fail(notAServer(this.url, `it answered with the status ${status}`));
    else if (headers["grpc-status"] !== undefined) this.#ended(headers);
  }

  #ended(headers: IncomingHttpHeaders): void {
    this.#fail(errorOfStatus(this.url, headers));
  }

  #goodbye(): void {
    if (this.#leaving || this.#closed) return;
    this.#leaving = true;
    this.#flush();
    this.#events.onGoodbye(this);
    if (this.#unanswered === 0) this.#hangUp();
  }

  /** Everything has been said: the server hears that, and closes. */
  #hangUp(): void {
    if (this.#closed) return;
    this.#flush();
    this.#stream.end();
    this.#fail(new Error("The session was left."), 1_000);
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
    this.#outbox.clear();
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
