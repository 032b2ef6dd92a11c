/** Errors for a database that does not answer, or whose answers are of no use. */
import { StoreUnavailableError } from "../../store/index.ts";

export function unanswered(store: string, withinMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `The ${store} store did not answer within ${withinMs} ms. The result of the request is unknown.`,
  );
}

export function stillFailing(key: string, store: string, forMs: number, why: string): StoreUnavailableError {
  return new StoreUnavailableError(
    `Requests to the ${store} store for "${key}" failed for ${forMs} ms: ${why}. The holder is unknown. Try again.`,
    { key },
  );
}
