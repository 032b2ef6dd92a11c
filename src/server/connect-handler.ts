/**
 * Passes HTTP requests to the services of a Connect router, like `connectNodeAdapter`. In addition:
 *
 * - A request is read only after its caller is known, in bounded time and memory.
 * - The end of the connection ends the call, even while its answer waits to be read.
 * - No error escapes, and errors of HTTP have a body.
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

export interface ServedService {
  readonly service: UniversalHandler["service"];
  readonly implementation: object;
}

export interface ConnectHandlerOptions {
  readonly limits: ResolvedLimits;
  readonly services: readonly ServedService[];
  /** Identifies the caller for the context of the services. Throws a `ConnectError` to refuse it. */
  readonly admit: (exchange: Exchange, handler: UniversalHandler) => ContextValues;
}

/** The longest time of a timer. A longer timeout of a caller is ignored. */
const MAX_TIMEOUT_MS = 2_147_483_647;

/** Room for the envelope of a message, and for empty ones after it. */
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
      // The services use only the query.
      url: new URL(exchange.request.url ?? "/", "http://localhost").toString(),
      header: universalHeaders(exchange),
      body: bodyOf(exchange, refusal),
      signal: exchange.closed,
      ...(contextValues !== undefined && { contextValues }),
    };
  }

  /** Connect sends errors that are thrown here in the form of the protocol. */
  async function* bodyOf(exchange: Exchange, refusal: unknown): AsyncGenerator<Uint8Array, void, void> {
    if (refusal !== undefined) throw refusal;
    const bytes = await exchange.body(limits.maxMessageBytes + ENVELOPE_BYTES, (reason) =>
      bodyError(reason, limits),
    );
    if (bytes.length > 0) yield bytes;
  }
}

/** Connect decodes the text of a message with this, after its envelope and its compression. */
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
          // Connect itself reports a text that is not JSON.
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

/** Connect sets a timer even for a timeout that it refuses, and Node turns a time that is too long into 1 ms. */
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
    // The headers may change until the first piece exists.
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
    // Not awaited: a generator that waits for an event would never return.
    body?.return?.().catch(() => {});
  }
}
