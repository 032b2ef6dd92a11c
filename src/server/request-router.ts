/**
 * Routes each request to a session, a service or a page: `/healthz`, `/readyz` or `/metrics`. An unexpected error fails its own
 * request and is logged; the server goes on.
 */
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Calls } from "./calls.ts";
import type { ServerContext } from "./context.ts";
import { Exchange, isHttp2 } from "./exchange.ts";
import type { Health } from "./health.ts";
import { type HostCheck, hostnameOf } from "./host-check.ts";
import { httpErrors, pagePaths, sendError } from "./http-errors.ts";
import type { AnyRequest, AnyResponse } from "./listener.ts";
import type { Metrics } from "./metrics.ts";
import { peerOf } from "./peer.ts";
import { isSessionRequest, type Sessions } from "./sessions.ts";

export interface Routes {
  readonly calls: Calls;
  readonly sessions: Sessions;
  readonly health: Health;
  readonly hostCheck: HostCheck;
}

export function createRequestRouter(
  context: ServerContext,
  { calls, sessions, health, hostCheck }: Routes,
): (request: AnyRequest, response: AnyResponse) => void {
  const { errors, metrics, audit } = context;
  const pipelines = new Pipelines(context.limits.maxStreams);

  async function route(exchange: Exchange, response: AnyResponse): Promise<void> {
    const { request, host } = exchange;
    const isPage = request.method === "GET" && pagePaths.includes(request.url ?? "");
    // Health checks of orchestrators need not send a usable Host.
    if (!isPage && hostnameOf(host) === undefined) return sendError(exchange, httpErrors.badHost(host));
    const refusal = hostCheck(request);
    if (refusal !== undefined) {
      errors.dropped(refusal.reason);
      audit.foreign(refusal.reason, peerOf(request));
      return sendError(exchange, httpErrors.forbidden(refusal.message));
    }
    if (isPage) return showPage(exchange, health, metrics);
    if (!isSessionRequest(request)) return calls.handle(exchange);
    exchange.enter();
    sessions.open(request, response as Http2ServerResponse);
  }

  async function answer(request: AnyRequest, response: AnyResponse): Promise<void> {
    const exchange = new Exchange(request, response, context);
    try {
      pipelines.enter(exchange);
      if (!exchange.closed.aborted) await route(exchange, response);
    } catch (error) {
      if (exchange.closed.aborted) return;
      errors.unexpected(error);
      if (exchange.hasBegun) exchange.cutOff();
      else await sendError(exchange, httpErrors.unexpected());
    }
  }

  return (request, response) => {
    answer(request, response).catch((error) => errors.unexpected(error));
  };
}

async function showPage(exchange: Exchange, health: Health, { registry }: Metrics): Promise<void> {
  const send = (status: number, text: string, type = "text/plain") =>
    exchange.send(status, { "content-type": type }, text);
  const { url } = exchange.request;
  if (url === "/metrics") await send(200, await registry.metrics(), registry.contentType);
  else if (url === "/readyz" && !(await health.isReady()))
    await send(503, "The store does not answer, or the server is stopping.\n");
  else await send(200, "ok\n");
}

/**
 * The open requests of each HTTP/1.1 connection. Node starts all pipelined requests at once. When the connection closes, it
 * emits an event only for the request that is being answered.
 */
class Pipelines {
  readonly #max: number;
  readonly #open = new WeakMap<Socket, Set<Exchange>>();

  constructor(max: number) {
    this.#max = max;
  }

  enter(exchange: Exchange): void {
    if (isHttp2(exchange.request)) return;
    const { socket } = exchange.request;
    const open = this.#open.get(socket) ?? this.#begin(socket);
    open.add(exchange);
    exchange.closed.addEventListener("abort", () => open.delete(exchange));
    if (open.size > this.#max) exchange.cutOff("pipelined");
  }

  #begin(socket: Socket): Set<Exchange> {
    const open = new Set<Exchange>();
    this.#open.set(socket, open);
    socket.once("close", () => {
      for (const exchange of open) exchange.close();
    });
    return open;
  }
}
