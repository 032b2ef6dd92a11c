/**
 * One request and its response, over HTTP/1.1 or HTTP/2. `closed` aborts as soon as the connection ends, so nothing waits for
 * a stream that emits no more events. A client that does not send its request or read its response in time is cut off.
 */
import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest } from "node:http2";
import { GrowingBuffer } from "../protocol/index.ts";
import type { ServerContext } from "./context.ts";
import type { AnyRequest, AnyResponse } from "./listener.ts";
import type { BudgetUser } from "./memory-budget.ts";

/** Responses are written in pieces of this size, so that a slow client can be told from one that does not read. */
const PIECE_BYTES = 65_536;

/** The approximate memory of a request without its body, besides its headers, which Node keeps twice. */
const REQUEST_BYTES = 4_096;

export class Exchange implements BudgetUser {
  readonly request: AnyRequest;
  /** Both kinds of response have the methods that are used here. TypeScript does not know that. */
  readonly #response: ServerResponse;
  readonly #context: ServerContext;
  readonly #closing = new AbortController();
  readonly #headBytes: number;
  /** Whether the request counts for the limits of its principal instead of the memory budget. */
  #isEntered = false;

  constructor(request: AnyRequest, response: AnyResponse, context: ServerContext) {
    this.request = request;
    this.#response = response as ServerResponse;
    this.#context = context;
    this.#response.on("error", () => {});
    this.#response.once("close", () => this.close());
    this.#headBytes = request.rawHeaders.reduce((bytes, text) => bytes + 2 * text.length, REQUEST_BYTES);
    // Only the body of a POST is read. Other bodies are discarded at once.
    if (this.method !== "POST") request.resume();
    if (isHttp2(request) ? request.stream.destroyed : request.socket.destroyed) this.close();
    else this.#useMemory(this.#headBytes);
  }

  /** The request is complete and its caller is known, so it may last. */
  enter(): void {
    if (this.#isEntered) return;
    this.#isEntered = true;
    this.#context.budget.remove(this, this.#headBytes);
  }

  /** Aborts when the response is complete, or the connection or the stream is gone. */
  get closed(): AbortSignal {
    return this.#closing.signal;
  }

  get method(): string {
    return this.request.method ?? "";
  }

  /** Without the query. */
  get path(): string {
    return this.request.url?.split("?", 1)[0] ?? "";
  }

  get headers(): IncomingHttpHeaders {
    return this.request.headers;
  }

  get host(): string | undefined {
    return isHttp2(this.request) ? this.request.authority : this.request.headers.host;
  }

  /** Reads the whole body. Rejects with `refusal(reason)` if it is too long or too slow, or if the connection ends. */
  body(maxBytes: number, refusal: (reason: BodyRefusal) => Error): Promise<Buffer> {
    const { request, closed } = this;
    const { limits, budget } = this.#context;
    return new Promise((resolve, reject) => {
      const bytes = new GrowingBuffer();
      const timer = setTimeout(() => settle("late"), limits.silenceMs).unref();
      const settle = (reason?: BodyRefusal) => {
        clearTimeout(timer);
        closed.removeEventListener("abort", onClosed);
        request.off("data", onData).off("end", onEnd);
        budget.remove(this, bytes.capacity);
        if (reason !== undefined) reject(refusal(reason));
        else {
          this.enter();
          resolve(bytes.bytes);
        }
        // Discards the rest.
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
        this.#useMemory(bytes.capacity - former);
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
    // Discards a body that was not read.
    this.request.resume();
    if (!this.closed.aborted) this.#response.writeHead(status, headers);
  }

  /** Resolves when the client can take more, or is gone. Unread bytes count for the memory budget. */
  async write(bytes: Uint8Array): Promise<void> {
    const { budget } = this.#context;
    this.#useMemory(bytes.length);
    for (let at = 0; at < bytes.length && !this.closed.aborted; at += PIECE_BYTES) {
      const piece = bytes.subarray(at, at + PIECE_BYTES);
      const isTaken = this.#response.write(piece, () => budget.remove(this, piece.length));
      if (!isTaken) await this.#event("drain");
    }
  }

  /** Ends the response, and resolves when the client has it or is gone. */
  async end(trailers: OutgoingHttpHeaders = {}): Promise<void> {
    if (this.closed.aborted) return;
    if (this.#isEntered) this.#useMemory(this.#headBytes);
    this.#response.addTrailers(trailers);
    this.#response.end();
    await this.#event("finish");
    if (this.closed.aborted) return;
    // Discards the rest of the request.
    this.request.resume();
    if (isHttp2(this.request)) this.#cutOffLater();
  }

  /** Sends a short answer. */
  async send(status: number, headers: OutgoingHttpHeaders, text: string): Promise<void> {
    const bytes = Buffer.from(text);
    this.begin(status, { "content-length": bytes.length, ...headers });
    await this.write(bytes);
    await this.end();
  }

  get hasBegun(): boolean {
    return this.#response.headersSent;
  }

  /** Ends the stream, or the connection of HTTP/1.1. */
  cutOff(reason?: string): void {
    if (this.closed.aborted) return;
    if (reason !== undefined) this.#context.errors.dropped(reason);
    const { request } = this;
    if (isHttp2(request)) {
      request.stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      request.stream.destroy();
    } else request.socket.destroy();
    this.close();
  }

  /** Waits for an event of the response, at most for as long as a client may leave its answer unread. */
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

  #useMemory(bytes: number): void {
    if (!this.closed.aborted) this.#context.budget.add(this, bytes);
  }

  /** The connection or the stream is gone. */
  close(): void {
    if (this.closed.aborted) return;
    this.#closing.abort();
    this.#context.budget.set(this, 0);
  }
}

/** The reason why a body was not read to its end. */
export type BodyRefusal = "long" | "late" | "closed";

export function isHttp2(request: AnyRequest): request is Http2ServerRequest {
  return request.httpVersionMajor === 2;
}
