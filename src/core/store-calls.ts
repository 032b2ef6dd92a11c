/** Guards against stores that do not keep to their contract: one bad answer must not stop the loop of all claims. */
import type { AcquireAnswer, RenewAnswer } from "./store.ts";

/** Calls the store. One that throws, instead of rejecting, has failed like any other. */
export function callStore<T>(call: () => Promise<T>): Promise<T> {
  try {
    return Promise.resolve(call());
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Whether it can be acted upon: a deadline that is counted from something else than a number would never come. */
export function isSound(answer: AcquireAnswer | RenewAnswer | undefined): boolean {
  switch (answer?.state) {
    case "held":
      return typeof answer.fence === "bigint" && isNumber(answer.expiresInMs);
    case "waiting":
      return isNumber(answer.expiresInMs) && isNumber(answer.retryInMs);
    case "refused":
    case "gone":
      return true;
    default:
      return false;
  }
}

function isNumber(value: unknown): boolean {
  return typeof value === "number" && !Number.isNaN(value);
}
