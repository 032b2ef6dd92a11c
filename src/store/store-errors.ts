/** What stores and guards have in common where something fails, most of all when they make a `HoldfastError` of what a driver throws. */
import { type ErrorCode, type ErrorDetails, HoldfastError, StoreUnavailableError } from "./errors.ts";

/** What an error of a database or of its client means. */
export interface ErrorMeaning {
  readonly code: ErrorCode;
  /** What is the matter, and what to do about it. */
  readonly what: string;
}

/** The meanings that most errors have. */
export const meaning = {
  unavailable: (what: string): ErrorMeaning => ({ code: "STORE_UNAVAILABLE", what }),
  unauthorized: (what: string): ErrorMeaning => ({ code: "UNAUTHORIZED", what }),
  failure: (what: string): ErrorMeaning => ({ code: "STORE_FAILURE", what }),
} as const;

/** The error of a code, of the class that people know it by. */
export function storeError(code: ErrorCode, message: string, details: ErrorDetails): HoldfastError {
  return code === "STORE_UNAVAILABLE"
    ? new StoreUnavailableError(message, details)
    : new HoldfastError(code, message, details);
}

/**
 * The names of an error's class and of those above it, the nearest first, and before them its own name. There may be several
 * copies of a driver in a process, so that `instanceof` would not do.
 */
export function classesOf(error: unknown): readonly string[] {
  if (!(error instanceof Error)) return [];
  const names = [error.name];
  for (let at = Object.getPrototypeOf(error); at !== null; at = Object.getPrototypeOf(at)) {
    names.push(at.constructor.name);
  }
  return names;
}

const mistakes = ["TypeError", "RangeError", "ReferenceError", "SyntaxError"];

/** Whether it is an error in a program. What else a client comes up with is trouble on the way to the server. */
export function isMistake(error: unknown): boolean {
  return classesOf(error).some((name) => mistakes.includes(name));
}

export function closedStore(name: string, key?: string): HoldfastError {
  return new HoldfastError("CLOSED", `The ${name} store is closed. Create another store.`, { key });
}
