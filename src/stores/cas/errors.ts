/** What is told when a database gives no answer, or none that is of any use. */
import { StoreUnavailableError } from "../../core/index.ts";

export function unanswered(store: string, withinMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `The ${store} store did not answer within ${withinMs} ms. Whether it did what was asked is unknown.`,
  );
}

export function triedInVain(key: string, store: string, forMs: number, why: string): StoreUnavailableError {
  return new StoreUnavailableError(
    `The ${store} store was asked about "${key}" for ${forMs} ms without success: ${why}. Who holds it is unknown. Try again.`,
    { key },
  );
}
