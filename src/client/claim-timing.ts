/** The times that decide the life of a claim. */

/** Stores tell time in whole milliseconds, so an expiry can be up to this much earlier than promised. */
export const STORE_TICK_MS = 1;

/** How long a cancelled or timed-out acquire waits for the store to confirm that its claim is gone. */
export const GOODBYE_MS = 1_000;

/** A silence counts as an outage only after this many requests, so that a pause of this process does not. */
export const MIN_ATTEMPTS = 3;

/** The first pause before a failed request is repeated; it doubles up to the time allowed for an answer. */
export const FIRST_RETRY_MS = 20;

export const NEVER = Number.POSITIVE_INFINITY;
