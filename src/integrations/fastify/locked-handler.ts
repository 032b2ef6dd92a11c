import type { FastifyReply, FastifyRequest, RouteGenericInterface } from "fastify";
import type { Lease, LockOptions } from "../../client/index.ts";
import { onAbort } from "../../platform/index.ts";
import { HoldfastError, invalid } from "../../store/index.ts";
import { hostOf } from "./holdfast-plugin.ts";

/** Options of `locked`: those of a mutex, and these. */
export interface LockedHandlerOptions extends LockOptions {
  /** How long a request waits for the lock; 0 does not wait. Then it is answered with 423. Default: without end. */
  readonly waitMs?: number;
  /** Higher goes first. 0 to 65,535. Default 0. */
  readonly priority?: number;
  /** For people: why the lock is asked for. Default: the method and the route. */
  readonly info?: string;
}

/** A handler that is called with the lease as well. */
export type LockedHandler<Route extends RouteGenericInterface> = (
  request: FastifyRequest<Route>,
  reply: FastifyReply<Route>,
  lease: Lease,
) => unknown;

/** What the response says where there is no lease. What else goes wrong is Fastify's 500. */
const statusCodes: Partial<Record<HoldfastError["code"], number>> = {
  ACQUIRE_TIMEOUT: 423,
  QUEUE_FULL: 503,
  STORE_UNAVAILABLE: 503,
  CLOSED: 503,
};

/**
 * A handler that runs only while it holds a mutex: of this key, or of the one that a function makes of the request. The lease is
 * given back when the handler is done. A request whose sender has gone stops waiting.
 *
 * @example
 * app.post("/accounts/:id", locked((request) => `account:${request.params.id}`, async (request, reply, lease) => { … }));
 */
export function locked<Route extends RouteGenericInterface = RouteGenericInterface>(
  key: string | ((request: FastifyRequest<Route>) => string),
  handler: LockedHandler<Route>,
  options: LockedHandlerOptions = {},
): (request: FastifyRequest<Route>, reply: FastifyReply<Route>) => Promise<unknown> {
  if (typeof handler !== "function")
    throw invalid(`locked needs a handler as its second argument, not ${handler}.`);
  const { waitMs, priority, info, ...lockOptions } = options;
  return async (request, reply) => {
    const hosted = hostOf(request.server);
    if (hosted === undefined)
      throw invalid("locked needs the plugin. Call app.register(holdfastPlugin, { store }) first.");
    const lock = hosted.locks.mutex(typeof key === "string" ? key : key(request), lockOptions);
    const wanted = whileWanted(hosted.stopping, reply, lock.key);
    let isHeld = false;
    const body = (lease: Lease) => {
      isHeld = true;
      wanted.part();
      return handler(request, reply, lease);
    };
    try {
      return await lock.run(body, {
        signal: wanted.signal,
        info: info ?? `${request.method} ${request.routeOptions.url ?? ""}`,
        ...(waitMs === undefined ? {} : { waitMs }),
        ...(priority === undefined ? {} : { priority }),
      });
    } catch (error) {
      throw isHeld ? error : withStatusCode(error);
    } finally {
      wanted.part();
    }
  };
}

/** Aborts when the application stops or the sender of the request has gone, until `part` is called. */
function whileWanted<Route extends RouteGenericInterface>(
  stopping: AbortSignal,
  reply: FastifyReply<Route>,
  key: string,
): { readonly signal: AbortSignal; part(): void } {
  const controller = new AbortController();
  const stop = () => controller.abort(stopping.reason);
  const leave = () =>
    controller.abort(new HoldfastError("CLOSED", "The client closed the request.", { key }));
  // Not AbortSignal.any: the application's signal would remember every request.
  const listenNoMore = onAbort(stopping, stop);
  reply.raw.once("close", leave);
  if (stopping.aborted) stop();
  if (reply.raw.destroyed) leave();
  return {
    signal: controller.signal,
    part() {
      listenNoMore();
      reply.raw.removeListener("close", leave);
    },
  };
}

/** Fastify answers with the `statusCode` of an error. */
function withStatusCode(error: unknown): unknown {
  const statusCode = error instanceof HoldfastError ? statusCodes[error.code] : undefined;
  if (statusCode === undefined) return error;
  // A copy of nothing but what concerns this request: an abort reason is shared by all that it stops.
  const { code, message, key } = error as HoldfastError;
  return Object.assign(new HoldfastError(code, message, { key, cause: error }), { statusCode });
}
