/** Exit codes. `holdfast run` passes on the code of its command, so its own codes are uncommon ones, mostly from sysexits.h. */
import type { ErrorCode } from "../store/index.ts";

export const exitCodes = {
  ok: 0,
  /** The command worked and the answer is no: a check failed, or no claim was released. */
  no: 1,
  /** Wrong arguments or a wrong configuration. Nothing was changed. */
  usage: 64,
  /** The store or the server does not answer. */
  unavailable: 69,
  /** A failure that a retry does not repair. */
  failure: 70,
  /** The lock was not acquired in time. */
  notAcquired: 75,
  /** The token, or the user of the store, lacks a right. */
  unauthorized: 77,
  /** The lease was lost, or could not be renewed, and the command was stopped. */
  lost: 79,
  /** The command of `holdfast run` is not executable. */
  notExecutable: 126,
  /** The command of `holdfast run` was not found. */
  notFound: 127,
  /** Plus the number of the signal that ended the command. */
  signal: 128,
} as const;

const ofErrors: Readonly<Record<ErrorCode, number>> = {
  ACQUIRE_TIMEOUT: exitCodes.notAcquired,
  QUEUE_FULL: exitCodes.notAcquired,
  LEASE_LOST: exitCodes.lost,
  NOT_HELD: exitCodes.lost,
  STALE_FENCE: exitCodes.lost,
  DEADLOCK: exitCodes.usage,
  INVALID_ARGUMENT: exitCodes.usage,
  UNSUPPORTED: exitCodes.usage,
  DURABILITY_UNAVAILABLE: exitCodes.usage,
  STORE_UNAVAILABLE: exitCodes.unavailable,
  STORE_FAILURE: exitCodes.failure,
  UNAUTHORIZED: exitCodes.unauthorized,
  CLOSED: exitCodes.failure,
};

export function exitCodeOf(code: ErrorCode): number {
  return ofErrors[code];
}
