/**
 * Middleware for Express, Fastify and Hono, none of which is imported.
 *
 * A request that is let in has its resource to itself until it is done. With Hono that is when the handler's promise is settled. With
 * Express and Fastify it is when the response is ended, since nothing else tells: so a handler ends it when all that it writes is
 * written. Where the client goes away first, the handler may still be at it, and has some time to come to its end.
 */
import { checkInteger } from "../store/index.ts";
import { admit, type FenceHttpOptions, type FenceRefusal, needsFence, rememberPass } from "./admission.ts";
import type { FenceGate, FencePass } from "./gate.ts";
import { FENCE_HEADER } from "./header.ts";
import { type NodeFenceRequest, type NodeFenceResponse, onClosed } from "./node-exchange.ts";

export interface NodeFenceOptions<R> extends FenceHttpOptions<R> {
  /** How long a handler keeps the resource after its client has gone away, unless it ends the response earlier. Default 30,000. */
  readonly abandonedMs?: number;
}

/** As Express calls a middleware. */
export type ExpressFence<R> = (
  request: R,
  response: NodeFenceResponse,
  next: (error?: unknown) => void,
) => void;

/**
 * For Express, and for handlers of node:http. Tested with Express 5.
 *
 * @example
 * app.put("/reports/:id", expressFence(gate), async (request, response) => { … });
 */
export function expressFence<R extends NodeFenceRequest>(
  gate: FenceGate,
  options: NodeFenceOptions<R> = {},
): ExpressFence<R> {
  return (request, response, next) => {
    if (!needsFence(request.method, options.methods)) {
      next();
      return;
    }
    enterNode(gate, request, request, response, options).then((admitted) => {
      if (admitted === undefined) return;
      if (!("status" in admitted)) {
        next();
        return;
      }
      response.statusCode = admitted.status;
      for (const [name, value] of Object.entries(headersOf(admitted))) response.setHeader(name, value);
      (response.end as (text: string) => void)(JSON.stringify(admitted.body));
    }, next);
  };
}

/** A request of Fastify, as far as it is used. */
export interface FastifyFenceRequest {
  readonly method: string;
  readonly raw: NodeFenceRequest;
}

/** A reply of Fastify, as far as it is used. */
export interface FastifyFenceReply {
  readonly raw: NodeFenceResponse;
  code(status: number): unknown;
  headers(headers: Record<string, string>): unknown;
  send(payload: string): unknown;
  hijack(): unknown;
}

/**
 * A hook for Fastify (tested with 5), as `preHandler` of a route or of a whole instance.
 *
 * @example
 * app.put("/reports/:id", { preHandler: fastifyFence(gate) }, async (request) => { … });
 */
export function fastifyFence<R extends FastifyFenceRequest>(
  gate: FenceGate,
  options: NodeFenceOptions<R> = {},
): (request: R, reply: FastifyFenceReply) => Promise<unknown> {
  return async (request, reply) => {
    if (!needsFence(request.method, options.methods)) return undefined;
    const admitted = await enterNode(gate, request, request.raw, reply.raw, options);
    if (admitted === undefined) {
      // Fastify calls the handler after a hook that resolves, whatever its value, unless the reply is sent or hijacked.
      reply.hijack();
      return reply;
    }
    if (!("status" in admitted)) return undefined;
    reply.code(admitted.status);
    reply.headers(headersOf(admitted));
    reply.send(JSON.stringify(admitted.body));
    // Fastify goes on to the handler unless it is handed the reply.
    return reply;
  };
}

/** A context of Hono, as far as it is used. */
export interface HonoFenceContext {
  readonly req: { readonly method: string; readonly raw: Request; header(name: string): string | undefined };
}

/**
 * For Hono. Tested with version 4.
 *
 * @example
 * app.put("/reports/:id", honoFence(gate), async (context) => { … });
 */
export function honoFence<C extends HonoFenceContext>(
  gate: FenceGate,
  options: FenceHttpOptions<C> = {},
): (context: C, next: () => Promise<void>) => Promise<Response | undefined> {
  return async (context, next) => {
    const { req } = context;
    if (!needsFence(req.method, options.methods)) {
      await next();
      return undefined;
    }
    const admitted = await admit(gate, req.header(FENCE_HEADER), context, options, req.raw.signal);
    if ("status" in admitted) {
      return new Response(JSON.stringify(admitted.body), {
        status: admitted.status,
        headers: headersOf(admitted),
      });
    }
    rememberPass(context, admitted);
    try {
      await next();
    } finally {
      admitted.leave();
    }
    return undefined;
  };
}

/** Undefined if the client has gone, before or while the request waited: the handler must not run then. */
async function enterNode<R extends object>(
  gate: FenceGate,
  request: R,
  raw: NodeFenceRequest,
  response: NodeFenceResponse,
  options: NodeFenceOptions<R>,
): Promise<FencePass | FenceRefusal | undefined> {
  const abandonedMs = checkInteger("abandonedMs", options.abandonedMs ?? 30_000, 0, 2 ** 31 - 1);
  const gone = new AbortController();
  const stop = onClosed(raw, response, () => gone.abort());
  let admitted: FencePass | FenceRefusal;
  try {
    admitted = await admit(gate, raw.headers[FENCE_HEADER.toLowerCase()], request, options, gone.signal);
  } catch (error) {
    if (gone.signal.aborted) return undefined;
    throw error;
  } finally {
    stop();
  }
  if ("status" in admitted) return admitted;
  rememberPass(request, admitted);
  leaveWhenDone(raw, response, admitted, abandonedMs);
  return admitted;
}

function leaveWhenDone(
  request: NodeFenceRequest,
  response: NodeFenceResponse,
  pass: FencePass,
  abandonedMs: number,
): void {
  const end = response.end as (...values: unknown[]) => unknown;
  response.end = (...values: unknown[]) => {
    pass.leave();
    return end.apply(response, values);
  };
  onClosed(request, response, () => {
    if (response.writableEnded) pass.leave();
    else setTimeout(() => pass.leave(), abandonedMs).unref();
  });
}

function headersOf({ headers }: FenceRefusal): Record<string, string> {
  return { "Content-Type": "application/json; charset=utf-8", ...headers };
}
