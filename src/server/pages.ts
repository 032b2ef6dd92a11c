/** What is not an RPC: `/healthz`, `/readyz` and `/metrics`, for orchestrators and Prometheus. */
import type { Exchange } from "./exchange.ts";
import type { Health } from "./health.ts";
import { pagePaths } from "./http-errors.ts";
import type { AnyRequest } from "./listener.ts";
import type { Metrics } from "./metrics.ts";

export function isPage(request: AnyRequest): boolean {
  return request.method === "GET" && pagePaths.includes(request.url ?? "");
}

export async function showPage(exchange: Exchange, health: Health, metrics: Metrics): Promise<void> {
  const send = (status: number, text: string, type = "text/plain") =>
    exchange.send(status, { "content-type": type }, text);
  const { url } = exchange.request;
  if (url === "/metrics") {
    await send(200, await metrics.registry.metrics(), metrics.registry.contentType);
  } else if (url === "/readyz" && !(await health.isReady())) {
    await send(503, "The store does not answer, or the server is stopping.\n");
  } else {
    await send(200, "ok\n");
  }
}
