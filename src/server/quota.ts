/** How much of what lasts a client may have at a time, so that one client cannot take up the whole server. */
import { HoldfastError } from "../store/index.ts";
import type { Client } from "./ledger.ts";
import type { ResolvedLimits } from "./limits.ts";

/** What is counted, by the limit for it. */
const kinds = {
  maxCalls: { count: "calls", name: "calls and sessions under way" },
  maxWaitingCalls: { count: "waitingCalls", name: "calls that wait" },
  maxWatches: { count: "watches", name: "watches" },
} as const;

/** Counts one more until the returned function is called. Throws if the client has as many as it may. */
export function occupy(client: Client, limit: keyof typeof kinds, limits: ResolvedLimits): () => void {
  const { count, name } = kinds[limit];
  if (client[count] >= limits[limit]) {
    const error = `${client.name} has ${client[count]} ${name}, and the server allows ${limits[limit]} (limits.${limit}). End some first.`;
    throw new HoldfastError("UNAUTHORIZED", error);
  }
  client[count]++;
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    client[count]--;
  };
}

/** The same until the signal aborts. */
export function occupyUntil(
  signal: AbortSignal,
  client: Client,
  limit: keyof typeof kinds,
  limits: ResolvedLimits,
): void {
  const leave = occupy(client, limit, limits);
  if (signal.aborted) leave();
  else signal.addEventListener("abort", leave, { once: true });
}
