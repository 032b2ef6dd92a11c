/**
 * Where requests come in. Each goes to a session, a page or a service; and whatever unexpected error one of them ends with ends here: that
 * call fails, the log says how, and the server goes on.
 */
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Audit } from "./audit.ts";
import type { Calls } from "./calls.ts";
import { Exchange, type ExchangeContext, isHttp2 } from "./exchange.ts";
import type { Health } from "./health.ts";
import { hostnameOf } from "./host.ts";
import type { HostCheck } from "./host-check.ts";
import { httpErrors, sendError } from "./http-errors.ts";
import type { AnyRequest, AnyResponse } from "./listener.ts";
import type { Metrics } from "./metrics.ts";
import { isPage, showPage } from "./pages.ts";
import { isSessionRequest, type Sessions } from "./sessions.ts";
import { sourceOf } from "./source.ts";

export interface EdgeContext extends ExchangeContext {
  readonly calls: Calls;
  readonly sessions: Sessions;
  readonly health: Health;
  readonly metrics: Metrics;
  readonly hostCheck: HostCheck;
  readonly audit: Audit;
  /** Told of errors that no part of the server expects. */
  onUnexpected(error: unknown): void;
}

export function createEdge(context: EdgeContext): (request: AnyRequest, response: AnyResponse) => void {
  const { calls, sessions, health, metrics, hostCheck, audit, onDrop, onUnexpected } = context;
  const pipelines = new Pipelines(context.limits.maxStreams);

  async function serve(exchange: Exchange, response: AnyResponse): Promise<void> {
    const { request, host } = exchange;
    // Whoever looks after health need not say a name.
    if (!isPage(request) && hostnameOf(host) === undefined)
      return await sendError(exchange, httpErrors.badHost(host));
    const refusal = hostCheck(request);
    if (refusal !== undefined) {
      onDrop(refusal.reason);
      audit.foreign(refusal.reason, sourceOf(request));
      return await sendError(exchange, httpErrors.forbidden(refusal.message));
    }
    if (isPage(request)) await showPage(exchange, health, metrics);
    else if (isSessionRequest(request)) {
      exchange.enter();
      sessions.open(request, response as Http2ServerResponse);
    } else await calls.handle(exchange);
  }

  async function answer(request: AnyRequest, response: AnyResponse): Promise<void> {
    const exchange = new Exchange(request, response, context);
    try {
      pipelines.enter(exchange);
      if (!exchange.closed.aborted) await serve(exchange, response);
    } catch (error) {
      if (exchange.closed.aborted) return;
      onUnexpected(error);
      if (exchange.hasBegun) exchange.cutOff();
      else await sendError(exchange, httpErrors.unexpected());
    }
  }

  return (request, response) => {
    answer(request, response).catch(onUnexpected);
  };
}

/**
 * The requests of each connection of HTTP/1.1. Node begins with all that come at once, and does not tell those whose turn to be answered has
 * not come when their connection closes.
 */
class Pipelines {
  readonly #max: number;
  readonly #open = new WeakMap<Socket, Set<Exchange>>();

  constructor(max: number) {
    this.#max = max;
  }

  enter(exchange: Exchange): void {
    if (isHttp2(exchange.request)) return;
    const own = this.#of(exchange.request.socket);
    own.add(exchange);
    exchange.closed.addEventListener("abort", () => own.delete(exchange));
    if (own.size > this.#max) exchange.cutOff("pipelined");
  }

  #of(socket: Socket): Set<Exchange> {
    const known = this.#open.get(socket);
    if (known !== undefined) return known;
    const own = new Set<Exchange>();
    this.#open.set(socket, own);
    socket.once("close", () => {
      for (const exchange of own) exchange.disconnect();
    });
    return own;
  }
}
