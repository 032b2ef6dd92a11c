/** The services for any language: Connect, gRPC and gRPC-Web on the same paths. */
import {
  type ContextValues,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import type { UniversalHandler } from "@connectrpc/connect/protocol";
import type { Logger } from "pino";
import { health as healthWire, locks as wire } from "../protocol/index.ts";
import { HoldfastError, type LookQuery, StoreUnavailableError } from "../store/index.ts";
import type { Asker, Audit } from "./audit.ts";
import { connectErrorOf, UnknownCaller } from "./call-errors.ts";
import { Clients } from "./clients.ts";
import { createConnectHandler } from "./connect-handler.ts";
import type { Exchange } from "./exchange.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { Health } from "./health.ts";
import { healthService } from "./health-service.ts";
import type { Identities, Visitor } from "./identity.ts";
import { KeyFeed } from "./key-feed.ts";
import type { ResolvedLimits } from "./limits.ts";
import { locksService } from "./locks-service.ts";
import type { Metrics } from "./metrics.ts";
import { QueuePlaces } from "./queue-places.ts";
import { occupyUntil } from "./quota.ts";
import { sourceOf } from "./source.ts";
import { Turns } from "./turns.ts";

export interface CallsContext {
  readonly store: GuardedStore;
  readonly limits: ResolvedLimits;
  readonly identities: Identities;
  readonly metrics: Metrics;
  readonly health: Health;
  readonly logger: Logger;
  readonly audit: Audit;
  onError(error: unknown): void;
}

/** One call, as a service sees it. */
export interface Call {
  readonly visitor: Visitor;
  /** Aborts when the caller is gone. */
  readonly gone: AbortSignal;
  /** Aborts when the server stops. */
  readonly leaving: AbortSignal;
}

/** Wraps the methods of services: who calls, and what failed. */
export interface Wrapping {
  unary<I, O>(
    method: (request: I, call: Call) => Promise<O>,
  ): (request: I, context: HandlerContext) => Promise<O>;
  stream<I, O>(
    method: (request: I, call: Call) => AsyncIterable<O>,
  ): (request: I, context: HandlerContext) => AsyncIterable<O>;
}

export interface Calls {
  handle(exchange: Exchange): Promise<void>;
  /** Ends open streams and waits; what they hold stays. Nothing new is begun. */
  leave(): void;
  close(): Promise<void>;
}

const visitorKey = createContextKey<Visitor | undefined>(undefined);

export function createCalls(context: CallsContext): Calls {
  const { store, limits, identities, metrics, onError, logger, audit } = context;
  const clients = new Clients(store, (code) => logger.warn({ code }, "a lease of a call needs attention"));
  const leaving = new AbortController();
  const look = (query: LookQuery) => store.look(query);
  const turns = new Turns();
  const feed = new KeyFeed(look, turns);
  const places = new QueuePlaces(look, turns);

  /** Before anything but the headers of a call is read. Health takes no token. */
  function admit({ headers, request }: Exchange, { service }: UniversalHandler): ContextValues {
    const values = createContextValues();
    if (service.typeName === healthWire.Health.typeName) return values;
    const source = sourceOf(request);
    try {
      return values.set(visitorKey, identities.admit(headers.authorization, "anybody", source));
    } catch (error) {
      return fail(error, { source });
    }
  }

  function callOf({ values, signal }: HandlerContext): Call {
    if (leaving.signal.aborted)
      throw new StoreUnavailableError("The server is stopping. Use another server.");
    const visitor = values.get(visitorKey);
    if (visitor === undefined) throw new UnknownCaller();
    occupyUntil(signal, visitor.client, "maxCalls", limits);
    return { visitor, gone: signal, leaving: leaving.signal };
  }

  function fail(error: unknown, asker: Partial<Asker> = {}): never {
    onError(error);
    audit.failed(error, asker);
    throw connectErrorOf(error);
  }

  /** Counts a stream until its caller is gone, even if nobody asks it for its end. */
  function countStream(gone: AbortSignal): () => void {
    metrics.streams++;
    const end = () => {
      if (isOver) return;
      isOver = true;
      gone.removeEventListener("abort", end);
      metrics.streams--;
    };
    let isOver = false;
    gone.addEventListener("abort", end);
    return end;
  }

  const wrapping: Wrapping = {
    unary: (method) => async (request, handler) => {
      try {
        return await method(request, callOf(handler));
      } catch (error) {
        return fail(error, handler.values.get(visitorKey));
      }
    },
    stream: (method) =>
      async function* (request, handler) {
        const end = countStream(handler.signal);
        try {
          yield* method(request, callOf(handler));
        } catch (error) {
          fail(error, handler.values.get(visitorKey));
        } finally {
          end();
        }
      },
  };

  const services = [
    {
      service: wire.Locks,
      implementation: locksService({ store, limits, clients, feed, places, wrapping }),
    },
    {
      service: healthWire.Health,
      implementation: healthService(context.health, limits, leaving.signal),
    },
  ];
  return {
    handle: createConnectHandler({ services, limits, admit }),
    leave() {
      leaving.abort(new HoldfastError("CLOSED", "The server is stopping."));
      clients.leave();
    },
    close: () => clients.close(),
  };
}
