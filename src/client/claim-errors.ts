/** The errors that the life of a claim can end in, each said once. */

import type { RefusalReason } from "../store/index.ts";
import { HoldfastError, StoreUnavailableError } from "../store/index.ts";

export function closedError(key?: string): HoldfastError {
  return new HoldfastError(
    "CLOSED",
    "This Holdfast client is closed. Create another client with createLocks.",
    {
      key,
    },
  );
}

/** `remedy` says what to do about it. */
export function deadlockError(key: string, remedy: string): HoldfastError {
  return new HoldfastError(
    "DEADLOCK",
    `A body around this call already holds "${key}", so the call would wait for itself. ${remedy}`,
    { key },
  );
}

export function notHeldError(key: string): HoldfastError {
  return new HoldfastError("NOT_HELD", `The lease on "${key}" was released. Acquire the lock again.`, {
    key,
  });
}

/**
 * `bound` is what the outage has outlasted, such as `ttlMs 30000`. A store that has answered says itself what is the matter and what
 * to do about it, and most people read no further than the message.
 */
export function unavailableError(store: string, key: string, bound: string, cause: unknown): HoldfastError {
  const told =
    cause instanceof HoldfastError
      ? `The ${store} store could not serve "${key}" (${bound}). ${asSentence(cause.message)}`
      : `The ${store} store did not answer for "${key}" (${bound}).`;
  return new StoreUnavailableError(
    `${told} The holder is unknown. A claim that this call left in the store ends with its ttl.`,
    { key, cause },
  );
}

/** With a full stop, which what a system or a server says often lacks. */
function asSentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

export function tooLateError(key: string): HoldfastError {
  return new StoreUnavailableError(
    `The store answered for "${key}" only after the ttl of the claim had passed.`,
    {
      key,
    },
  );
}

export function takenOverError(key: string, id: string): HoldfastError {
  return new HoldfastError(
    "INVALID_ARGUMENT",
    `Another call with the id "${id}" has taken over the claim on "${key}". Use each id for one attempt.`,
    { key },
  );
}

export function idInUseError(key: string, id: string): HoldfastError {
  return new HoldfastError(
    "INVALID_ARGUMENT",
    `id "${id}" is in use by an open claim of this client on "${key}". ` +
      "Release that claim first, or use another id.",
    { key },
  );
}

export function refusalError(reason: RefusalReason, key: string, id: string): HoldfastError {
  if (reason === "queue-full") {
    return new HoldfastError(
      "QUEUE_FULL",
      `"${key}" has as many waiters as its store allows (maxWaiters). Try again later, or raise maxWaiters.`,
      { key },
    );
  }
  return new HoldfastError(
    "INVALID_ARGUMENT",
    `id "${id}" names a claim on "${key}" with another weight, limit or priority. ` +
      "Repeat the request unchanged, or use a new id.",
    { key },
  );
}

export function unreleasedText(key: string): string {
  return (
    `A lease on "${key}" was garbage-collected without being released. ` +
    "It is no longer renewed and ends with its ttl. Use run, tryRun or `await using`, or call release."
  );
}
