/** The services for any language: Connect, gRPC and gRPC-Web on the same paths. */
import {
  type ConnectRouter,
  type ContextValues,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import type { Logger } from "pino";
import { HoldfastError, StoreUnavailableError } from "../core/index.ts";
import { health as healthWire, locks as wire } from "../protocol/index.ts";
import { connectErrorOf } from "./call-errors.ts";
import { Clients } from "./clients.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { Health } from "./health.ts";
import { healthService } from "./health-service.ts";
import type { Identities, Visitor } from "./identity.ts";
import type { ResolvedLimits } from "./limits.ts";
import type { AnyRequest, AnyResponse } from "./listener.ts";
import { locksService } from "./locks-service.ts";
import type { Metrics } from "./metrics.ts";

export interface CallsContext {
  readonly store: GuardedStore;
  readonly limits: ResolvedLimits;
  readonly identities: Identities;
  readonly metrics: Metrics;
  readonly health: Health;
  readonly logger: Logger;
  onError(error: unknown): void;
  onDrop(reason: string): void;
}

/** One call, as a service sees it. */
export interface Call {
  readonly visitor: Visitor;
  /** Aborts when the caller is gone. */
  readonly gone: AbortSignal;
  /** Aborts when the server stops. */
  readonly leaving: AbortSignal;
}

/** Wraps the methods of services: who calls, what failed, and callers that do not read. */
export interface Wrapping {
  unary<I, O>(
    method: (request: I, call: Call) => Promise<O>,
  ): (request: I, context: HandlerContext) => Promise<O>;
  stream<I, O>(
    method: (request: I, call: Call) => AsyncIterable<O>,
  ): (request: I, context: HandlerContext) => AsyncIterable<O>;
}

export interface Calls {
  handle(request: AnyRequest, response: AnyResponse): void;
  /** Ends open streams and waits; what they hold stays. Nothing new is begun. */
  leave(): void;
  close(): Promise<void>;
}

/** What is known of a call's connection. */
interface Origin {
  readonly authorization: string | undefined;
  cutOff(): void;
}

const originKey = createContextKey<Origin>({ authorization: undefined, cutOff: () => {} });

export function createCalls(context: CallsContext): Calls {
  const { store, limits, identities, metrics, onError, onDrop, logger } = context;
  const clients = new Clients(store, (code) => logger.warn({ code }, "a lease of a call needs attention"));
  const leaving = new AbortController();

  function admit({ values, signal }: HandlerContext): Call {
    if (leaving.signal.aborted) throw new StoreUnavailableError("The server is stopping. Ask another one.");
    const visitor = identities.admit(values.get(originKey).authorization, "anybody");
    return { visitor, gone: signal, leaving: leaving.signal };
  }

  function fail(error: unknown): never {
    onError(error);
    throw connectErrorOf(error);
  }

  const wrapping: Wrapping = {
    unary: (method) => async (request, handler) => {
      try {
        return await method(request, admit(handler));
      } catch (error) {
        return fail(error);
      }
    },
    stream: (method) =>
      async function* (request, handler) {
        metrics.streams++;
        try {
          for await (const event of method(request, admit(handler))) {
            const timer = setTimeout(() => {
              onDrop("slow-reader");
              handler.values.get(originKey).cutOff();
            }, limits.slowReaderMs).unref();
            try {
              yield event;
            } finally {
              clearTimeout(timer);
            }
          }
        } catch (error) {
          fail(error);
        } finally {
          metrics.streams--;
        }
      },
  };

  const routes = (router: ConnectRouter) => {
    router.service(wire.Locks, locksService({ store, limits, clients, wrapping }));
    router.service(healthWire.Health, healthService(context.health, leaving.signal));
  };
  const adapter = connectNodeAdapter({
    routes,
    contextValues: (request) => originOf(request as AnyRequest),
    readMaxBytes: limits.maxMessageBytes,
    maxTimeoutMs: 2_147_483_647,
  });
  return {
    handle(request, response) {
      adapter(request as never, response as never);
    },
    leave() {
      leaving.abort(new HoldfastError("CLOSED", "The server is stopping."));
      clients.leave();
    },
    close: () => clients.close(),
  };
}

function originOf(request: AnyRequest): ContextValues {
  return createContextValues().set(originKey, {
    authorization: request.headers.authorization,
    cutOff: () => void request.destroy(),
  });
}
