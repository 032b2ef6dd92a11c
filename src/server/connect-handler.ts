/**
 * Hands HTTP requests to the services of a Connect router, and writes what they answer.
 *
 * It does what `connectNodeAdapter` does, and: a request is read only after its caller is known, in bounded time and memory; the end of the
 * connection ends the call, even while its answer waits to be read; no error escapes; and errors of HTTP have a body.
 */
import { Code, ConnectError, type ContextValues, createConnectRouter } from "@connectrpc/connect";
import type { UniversalHandler, UniversalServerResponse } from "@connectrpc/connect/protocol";
import { compressionBrotli, compressionGzip } from "@connectrpc/connect-node";
import { checkJson } from "../protocol/index.ts";
import { HoldfastError } from "../store/index.ts";
import { connectErrorOf } from "./call-errors.ts";
import type { BodyRefusal, Exchange } from "./exchange.ts";
import { httpErrors, sendError } from "./http-errors.ts";
import type { ResolvedLimits } from "./limits.ts";

/** A service with what it does. */
export interface ServedService {
  readonly service: UniversalHandler["service"];
  readonly implementation: object;
}

export interface ConnectHandlerOptions {
  readonly limits: ResolvedLimits;
  readonly services: readonly ServedService[];
  /** Who calls, for the services to find in their context. Throws a `ConnectError` to a caller who is not let in. */
  readonly admit: (exchange: Exchange, handler: UniversalHandler) => ContextValues;
}

/** The longest time that a timer can take. A caller that gives a call longer sets no bound. */
const MAX_TIMEOUT_MS = 2_147_483_647;

/** What an envelope, and the empty ones after it, may add to a message. */
const ENVELOPE_BYTES = 1_024;

export function createConnectHandler(options: ConnectHandlerOptions): (exchange: Exchange) => Promise<void> {
  const { limits, services, admit } = options;
  const router = createConnectRouter({
    readMaxBytes: limits.maxMessageBytes,
    maxTimeoutMs: MAX_TIMEOUT_MS,
    acceptCompression: [compressionGzip, compressionBrotli],
  });
  for (const { service, implementation } of services) {
    const methods = implementation as Readonly<Record<string, never>>;
    for (const method of service.methods) {
      router.rpc(method, methods[method.localName] as never, { jsonOptions: strictJson(method) });
    }
  }
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));

  return async (exchange) => {
    const handler = handlers.get(exchange.path);
    if (handler === undefined)
      return sendError(exchange, httpErrors.noSuchPath(exchange.path, [...handlers.keys()]));
    const answer = await handler(universalRequest(exchange, handler));
    if (answer.body === undefined) return sendError(exchange, httpErrors.ofStatus(answer.status, handler));
    await write(exchange, answer);
  };

  function universalRequest(exchange: Exchange, handler: UniversalHandler) {
    let refusal: unknown;
    let contextValues: ContextValues | undefined;
    try {
      contextValues = admit(exchange, handler);
    } catch (error) {
      refusal = error;
    }
    return {
      httpVersion: exchange.request.httpVersion,
      method: exchange.method,
      // The services look at nothing but the query of it.
      url: new URL(exchange.request.url ?? "/", "http://localhost").toString(),
      header: universalHeaders(exchange),
      body: bodyOf(exchange, refusal),
      signal: exchange.closed,
      ...(contextValues !== undefined && { contextValues }),
    };
  }

  /** What fails here is told as each protocol tells its errors. */
  async function* bodyOf(exchange: Exchange, refusal: unknown): AsyncGenerator<Uint8Array, void, void> {
    if (refusal !== undefined) throw refusal;
    const bytes = await exchange.body(limits.maxMessageBytes + ENVELOPE_BYTES, (reason) =>
      bodyError(reason, limits),
    );
    if (bytes.length > 0) yield bytes;
  }
}

/** The text of a message comes by here before Connect reads it, without its envelope and its compression. */
function strictJson({ input }: UniversalHandler["method"]) {
  const decoder = new TextDecoder();
  return {
    ignoreUnknownFields: false,
    textDecoder: {
      decode(bytes: Uint8Array): string {
        const text = decoder.decode(bytes);
        try {
          checkJson(input, JSON.parse(text));
        } catch (error) {
          // Connect itself tells that a text is no JSON.
          if (error instanceof HoldfastError) throw connectErrorOf(error);
        }
        return text;
      },
    },
  };
}

function bodyError(reason: BodyRefusal, limits: ResolvedLimits): ConnectError {
  switch (reason) {
    case "long":
      return new ConnectError(
        `The request is longer than ${limits.maxMessageBytes} bytes (limits.maxMessageBytes). Send a shorter one.`,
        Code.ResourceExhausted,
      );
    case "late":
      return new ConnectError(
        `The request was incomplete after ${limits.silenceMs} ms (limits.silenceMs). Send it again.`,
        Code.DeadlineExceeded,
      );
    case "closed":
      return new ConnectError("The connection closed before the request was complete.", Code.Canceled);
  }
}

function universalHeaders({ headers }: Exchange): Headers {
  const universal = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(":") || isUnboundedTimeout(name, `${value}`)) continue;
    for (const one of Array.isArray(value) ? value : [value]) universal.append(name, one);
  }
  return universal;
}

/** Connect sets a timer even for a timeout that it refuses, and Node makes 1 ms of what a timer cannot hold. */
function isUnboundedTimeout(name: string, value: string): boolean {
  if (name === "connect-timeout-ms") return /^\d{1,10}$/.test(value) && Number(value) > MAX_TIMEOUT_MS;
  if (name !== "grpc-timeout") return false;
  const [, digits, unit] = /^(\d{1,8})([HMS])$/.exec(value) ?? [];
  const seconds = { H: 3_600, M: 60, S: 1 }[unit ?? ""] ?? 0;
  return Number(digits) * seconds * 1_000 > MAX_TIMEOUT_MS;
}

async function write(exchange: Exchange, answer: UniversalServerResponse): Promise<void> {
  const body = answer.body?.[Symbol.asyncIterator]();
  try {
    // The headers may be set until the first piece is there.
    let piece = await body?.next();
    exchange.begin(answer.status, Object.fromEntries(answer.header ?? []));
    for (
      ;
      piece !== undefined && piece.done !== true && !exchange.closed.aborted;
      piece = await body?.next()
    ) {
      await exchange.write(piece.value);
    }
    await exchange.end(Object.fromEntries(answer.trailer ?? []));
  } finally {
    // It has ended by itself, or is left where it is; it must not be waited for.
    body?.return?.().catch(() => {});
  }
}
