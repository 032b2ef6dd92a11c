/** What is not an RPC: `/healthz`, `/readyz` and `/metrics`, for orchestrators and Prometheus. */
import type { ServerResponse } from "node:http";
import type { Health } from "./health.ts";
import type { AnyRequest, AnyResponse } from "./listener.ts";
import type { Metrics } from "./metrics.ts";

const paths = ["/healthz", "/readyz", "/metrics"];

export function isPage(request: AnyRequest): boolean {
  return request.method === "GET" && paths.includes(request.url ?? "");
}

export async function showPage(
  request: AnyRequest,
  response: AnyResponse,
  health: Health,
  metrics: Metrics,
): Promise<void> {
  try {
    if (request.url === "/metrics") {
      const text = await metrics.registry.metrics();
      send(response, 200, metrics.registry.contentType, text);
    } else if (request.url === "/readyz" && !(await health.isReady())) {
      send(response, 503, "text/plain", "The store does not answer, or the server is stopping.\n");
    } else {
      send(response, 200, "text/plain", "ok\n");
    }
  } catch {
    send(response, 500, "text/plain", "This could not be found out.\n");
  }
}

/** The two kinds of response have these in common, but TypeScript cannot tell. */
function send(response: AnyResponse, status: number, type: string, text: string): void {
  const either = response as ServerResponse;
  if (either.headersSent || either.destroyed) return;
  either.writeHead(status, { "content-type": type });
  either.end(text);
}
