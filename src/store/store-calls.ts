/** Guards against stores that do not keep to their contract: one bad answer must not stop the loop of all claims. */
import { HoldfastError } from "./errors.ts";
import type { AcquireAnswer, ClaimRequest, RenewAnswer, Store } from "./store.ts";

/** Calls the store. One that throws, instead of rejecting, has failed like any other. */
export function callStore<T>(call: () => Promise<T>): Promise<T> {
  try {
    return Promise.resolve(call());
  } catch (error) {
    return Promise.reject(error);
  }
}

// The same for the two calls of every lock cycle, which a closure each would make dearer.

export function acquireFrom(store: Store, request: ClaimRequest): Promise<AcquireAnswer> {
  try {
    return Promise.resolve(store.acquire(request));
  } catch (error) {
    return Promise.reject(error);
  }
}

export function releaseFrom(store: Store, request: ClaimRequest): Promise<readonly boolean[]> {
  try {
    return Promise.resolve(store.release([request]));
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Whether it can be acted upon: a deadline that is counted from something else than a number would never come. */
export function isSound(answer: AcquireAnswer | RenewAnswer | undefined): boolean {
  switch (answer?.state) {
    case "held":
      return typeof answer.fence === "bigint" && answer.fence > 0n && isNumber(answer.expiresInMs);
    case "waiting":
      return isNumber(answer.expiresInMs) && isNumber(answer.retryInMs) && typeof answer.fence === "bigint";
    case "refused":
    case "gone":
    case "failed":
      return true;
    default:
      return false;
  }
}

function isNumber(value: unknown): boolean {
  return typeof value === "number" && !Number.isNaN(value);
}

/** The failure that an answer is which breaks the store contract. */
export function unsoundError(key: string): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    `The store gave an invalid answer for "${key}". Check that the store keeps the contract in docs/stores/writing-a-store.md.`,
    { key },
  );
}
