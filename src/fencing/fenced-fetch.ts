/** The client's side of a fenced service. */
import { HoldfastError } from "../store/index.ts";
import { type Fenced, type FenceTarget, fenceOf, parseFence, resourceOf, StaleFenceError } from "./fence.ts";
import { FENCE_HEADER, fenceHeader } from "./header.ts";

/**
 * `fetch` with the fence of a lease in the header. Throws before anything is sent if the lease is known to be lost, aborts
 * when it is lost meanwhile, and throws STALE_FENCE if the service refuses the fence. All else is as of `fetch`.
 *
 * @example
 * await fencedFetch(lease, "https://files.internal/report", { method: "PUT", body: report });
 */
export async function fencedFetch(
  lease: Fenced,
  input: string | URL | Request,
  init: RequestInit = {},
  target: FenceTarget = {},
): Promise<Response> {
  const fence = fenceOf(lease);
  const key = resourceOf(lease, target.resource);
  const request = input instanceof Request ? input : undefined;
  const headers = new Headers(init.headers ?? request?.headers);
  headers.set(FENCE_HEADER, fenceHeader({ fence, key }));
  const signals = [signalOf(lease), init.signal ?? request?.signal].filter(
    (signal) => signal instanceof AbortSignal,
  );
  const response = await fetch(input, { ...init, headers, signal: AbortSignal.any(signals) });
  if (response.status === 412) await throwIfStale(response.clone(), key, fence);
  return response;
}

function signalOf(lease: Fenced): unknown {
  return (lease as { signal?: unknown }).signal;
}

/** A 412 may as well be the answer to a condition of the caller's own. */
async function throwIfStale(response: Response, resource: string, fence: bigint): Promise<void> {
  try {
    const { code, mark } = Object(await response.json()) as { code?: unknown; mark?: unknown };
    if (code !== "STALE_FENCE") return;
    throw new StaleFenceError(resource, fence, typeof mark === "string" ? parseFence(mark) : undefined);
  } catch (error) {
    if (error instanceof HoldfastError) throw error;
  }
}
