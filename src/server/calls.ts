/** The services `Locks` and `Health`, for any language: Connect, gRPC and gRPC-Web on the same paths. */
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
import { AcquireCalls } from "./acquire-calls.ts";
import { connectErrorOf, UnknownCaller } from "./call-errors.ts";
import { type Caller, occupy, type Requester } from "./callers.ts";
import { createConnectHandler } from "./connect-handler.ts";
import type { ServerContext } from "./context.ts";
import type { Exchange } from "./exchange.ts";
import type { Health } from "./health.ts";
import { healthService } from "./health-service.ts";
import { KeyFeed } from "./key-feed.ts";
import { locksService } from "./locks-service.ts";
import { peerOf } from "./peer.ts";
import { QueuePositions } from "./queue-positions.ts";
import { Scheduler } from "./scheduler.ts";

/** One call, as a method of a service gets it. */
export interface Call {
  readonly caller: Caller;
  /** Aborts when the caller is gone. */
  readonly gone: AbortSignal;
  /** Aborts when the server stops. */
  readonly leaving: AbortSignal;
}

/** Wrap the methods of services: they identify the caller, and report errors. */
export interface MethodWrappers {
  unary<I, O>(
    method: (request: I, call: Call) => Promise<O>,
  ): (request: I, context: HandlerContext) => Promise<O>;
  stream<I, O>(
    method: (request: I, call: Call) => AsyncIterable<O>,
  ): (request: I, context: HandlerContext) => AsyncIterable<O>;
}

export interface Calls {
  handle(exchange: Exchange): Promise<void>;
  /** Ends open streams and waits, and refuses new calls. Leases stay in the store. */
  leave(): void;
  close(): Promise<void>;
}

const callerKey = createContextKey<Caller | undefined>(undefined);

export function createCalls(context: ServerContext, health: Health, logger: Logger): Calls {
  const { store, limits, callers, metrics, errors } = context;
  const acquireCalls = new AcquireCalls(store, (code) =>
    logger.warn({ code }, "a lease of a call needs attention"),
  );
  const leaving = new AbortController();
  const look = (query: LookQuery) => store.look(query);
  const scheduler = new Scheduler();
  const feed = new KeyFeed(look, scheduler);
  const positions = new QueuePositions(look, scheduler);

  /** Runs before anything but the headers of a call is read. Health needs no token. */
  function admit({ headers, request }: Exchange, { service }: UniversalHandler): ContextValues {
    const values = createContextValues();
    if (service.typeName === healthWire.Health.typeName) return values;
    const peer = peerOf(request);
    try {
      return values.set(callerKey, callers.identify(headers.authorization, "anyone", peer));
    } catch (error) {
      return fail(error, { peer });
    }
  }

  function callOf({ values, signal }: HandlerContext): Call {
    if (leaving.signal.aborted)
      throw new StoreUnavailableError("The server is stopping. Use another server.");
    const caller = values.get(callerKey);
    if (caller === undefined) throw new UnknownCaller();
    occupy(caller.client, "maxCalls", limits, signal);
    return { caller, gone: signal, leaving: leaving.signal };
  }

  function fail(error: unknown, requester?: Partial<Requester>): never {
    errors.failed(error, requester);
    throw connectErrorOf(error);
  }

  /** Counts a stream until its caller is gone, even if the caller never asks for the end of the stream. */
  function countStream(gone: AbortSignal): () => void {
    metrics.streams++;
    let isOver = false;
    const end = () => {
      if (isOver) return;
      isOver = true;
      gone.removeEventListener("abort", end);
      metrics.streams--;
    };
    gone.addEventListener("abort", end);
    return end;
  }

  const wrappers: MethodWrappers = {
    unary: (method) => async (request, handler) => {
      try {
        return await method(request, callOf(handler));
      } catch (error) {
        return fail(error, handler.values.get(callerKey));
      }
    },
    stream: (method) =>
      async function* (request, handler) {
        const end = countStream(handler.signal);
        try {
          yield* method(request, callOf(handler));
        } catch (error) {
          fail(error, handler.values.get(callerKey));
        } finally {
          end();
        }
      },
  };

  const locks = locksService({ store, limits, acquireCalls, feed, positions, wrappers });
  const services = [
    { service: wire.Locks, implementation: locks },
    { service: healthWire.Health, implementation: healthService(health, limits, leaving.signal) },
  ];
  return {
    handle: createConnectHandler({ services, limits, admit }),
    leave() {
      leaving.abort(new HoldfastError("CLOSED", "The server is stopping."));
      acquireCalls.leave();
    },
    close: () => acquireCalls.close(),
  };
}
