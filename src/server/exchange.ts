/**
 * One request and its response, over HTTP/1.1 or HTTP/2. Both end with the connection: `closed` aborts then, whatever else waits.
 *
 * A client that does not send its request, or does not read its response, is cut off in time.
 */
import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest } from "node:http2";
import { GrowingBuffer } from "../protocol/index.ts";
import type { Keeper, Kept } from "./kept.ts";
import type { ResolvedLimits } from "./limits.ts";
import type { AnyRequest, AnyResponse } from "./listener.ts";

/** Responses are written in pieces of this size, so that a client that reads slowly shows that it reads. */
const PIECE_BYTES = 65_536;

/** About how many bytes a request takes up without its body: so many, and its headers twice, as they came and as they are read. */
const REQUEST_BYTES = 4_096;

export interface ExchangeContext {
  readonly limits: ResolvedLimits;
  readonly kept: Kept;
  /** Told when a client was cut off, and why. */
  onDrop(reason: string): void;
}

export class Exchange implements Keeper {
  readonly request: AnyRequest;
  /** Both kinds of response have the methods that are used here, but TypeScript cannot tell. */
  readonly #response: ServerResponse;
  readonly #context: ExchangeContext;
  readonly #closing = new AbortController();
  readonly #headBytes: number;
  /** Whether the bounds of a principal, and not of what is kept, hold for the request itself. */
  #isEntered = false;

  constructor(request: AnyRequest, response: AnyResponse, context: ExchangeContext) {
    this.request = request;
    this.#response = response as ServerResponse;
    this.#context = context;
    this.#response.on("error", () => {});
    this.#response.once("close", () => this.#close());
    this.#headBytes = request.rawHeaders.reduce((bytes, text) => bytes + 2 * text.length, REQUEST_BYTES);
    // Only a POST has a body that is read. Pieces of another one would wait until the answer has been read.
    if (this.method !== "POST") request.resume();
    if (isHttp2(request) ? request.stream.destroyed : request.socket.destroyed) this.#close();
    else this.#keep(this.#headBytes);
  }

  /** The request is complete, and its caller known: it may last. */
  enter(): void {
    if (this.#isEntered) return;
    this.#isEntered = true;
    this.#context.kept.remove(this, this.#headBytes);
  }

  /** Aborts when the response is complete, or the connection or the stream is gone. */
  get closed(): AbortSignal {
    return this.#closing.signal;
  }

  get method(): string {
    return this.request.method ?? "";
  }

  /** Without what follows a question mark. */
  get path(): string {
    return this.request.url?.split("?", 1)[0] ?? "";
  }

  get headers(): IncomingHttpHeaders {
    return this.request.headers;
  }

  /** `Host`, or `:authority`. */
  get host(): string | undefined {
    return isHttp2(this.request) ? this.request.authority : this.request.headers.host;
  }

  /** The connection is gone, without a word from here. */
  disconnect(): void {
    this.#close();
  }

  /** Reads the whole body. Rejects with what `refusal` makes of the reason if it is too long, too slow, or the connection ends. */
  body(maxBytes: number, refusal: (reason: BodyRefusal) => Error): Promise<Buffer> {
    const { request, closed } = this;
    const { limits, kept } = this.#context;
    return new Promise((resolve, reject) => {
      const bytes = new GrowingBuffer();
      const timer = setTimeout(() => settle("late"), limits.silenceMs).unref();
      const settle = (reason?: BodyRefusal) => {
        clearTimeout(timer);
        closed.removeEventListener("abort", onClosed);
        request.off("data", onData).off("end", onEnd);
        kept.remove(this, bytes.capacity);
        if (reason !== undefined) reject(refusal(reason));
        else {
          this.enter();
          resolve(bytes.bytes);
        }
        // What still comes is thrown away.
        request.resume();
      };
      const onEnd = () => settle();
      const onClosed = () => settle("closed");
      const onData = (piece: Buffer) => {
        if (bytes.length + piece.length > maxBytes) {
          settle("long");
          return;
        }
        const former = bytes.capacity;
        bytes.push(piece);
        this.#keep(bytes.capacity - former);
      };
      if (Number(request.headers["content-length"] ?? 0) > maxBytes) settle("long");
      else if (closed.aborted) settle("closed");
      else {
        closed.addEventListener("abort", onClosed);
        request.on("data", onData).on("end", onEnd);
      }
    });
  }

  begin(status: number, headers: OutgoingHttpHeaders): void {
    // A request that was not read by now is thrown away.
    this.request.resume();
    if (!this.closed.aborted) this.#response.writeHead(status, headers);
  }

  /** Resolves when the client may be sent more, or is gone. What it is sent is kept until it has read it. */
  async write(bytes: Uint8Array): Promise<void> {
    const { kept } = this.#context;
    this.#keep(bytes.length);
    for (let at = 0; at < bytes.length && !this.closed.aborted; at += PIECE_BYTES) {
      const piece = bytes.subarray(at, at + PIECE_BYTES);
      const isTaken = this.#response.write(piece, () => kept.remove(this, piece.length));
      if (!isTaken) await this.#event("drain");
    }
  }

  /** Ends the response, and resolves when the client has it or is gone. */
  async end(trailers: OutgoingHttpHeaders = {}): Promise<void> {
    if (this.closed.aborted) return;
    if (this.#isEntered) this.#keep(this.#headBytes);
    this.#response.addTrailers(trailers);
    this.#response.end();
    await this.#event("finish");
    if (this.closed.aborted) return;
    // A client that has its answer has no reason to go on with its request.
    this.request.resume();
    if (isHttp2(this.request)) this.#cutOffLater();
  }

  /** A short answer, all at once. */
  async send(status: number, headers: OutgoingHttpHeaders, text: string): Promise<void> {
    const bytes = Buffer.from(text);
    this.begin(status, { "content-length": bytes.length, ...headers });
    await this.write(bytes);
    await this.end();
  }

  get hasBegun(): boolean {
    return this.#response.headersSent;
  }

  /** Ends the stream, or the connection where it has no streams. */
  cutOff(reason?: string): void {
    if (this.closed.aborted) return;
    if (reason !== undefined) this.#context.onDrop(reason);
    const { request } = this;
    if (isHttp2(request)) {
      request.stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      request.stream.destroy();
    } else request.socket.destroy();
    this.#close();
  }

  /** Waits for an event of the response, for as long as a client may leave its answer unread. */
  async #event(name: "drain" | "finish"): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => this.cutOff("slow-reader"), this.#context.limits.slowReaderMs).unref();
      const done = () => {
        clearTimeout(timer);
        this.#response.off(name, done);
        this.closed.removeEventListener("abort", done);
        resolve();
      };
      this.#response.on(name, done);
      this.closed.addEventListener("abort", done);
      if (this.closed.aborted) done();
    });
  }

  #cutOffLater(): void {
    const timer = setTimeout(() => this.cutOff(), this.#context.limits.slowReaderMs).unref();
    this.closed.addEventListener("abort", () => clearTimeout(timer));
  }

  #keep(bytes: number): void {
    if (!this.closed.aborted) this.#context.kept.add(this, bytes);
  }

  #close(): void {
    if (this.closed.aborted) return;
    this.#closing.abort();
    this.#context.kept.set(this, 0);
  }
}

/** Why a body was not read to its end. */
export type BodyRefusal = "long" | "late" | "closed";

export function isHttp2(request: AnyRequest): request is Http2ServerRequest {
  return request.httpVersionMajor === 2;
}
