/** Holdfast's errors as they travel. */
import { type ErrorCode, HoldfastError, storeError } from "../store/index.ts";
import { ErrorCode as WireCode } from "./gen/holdfast/v1/claims_pb.ts";

const wireCodes: Readonly<Record<ErrorCode, WireCode>> = {
  ACQUIRE_TIMEOUT: WireCode.ACQUIRE_TIMEOUT,
  LEASE_LOST: WireCode.LEASE_LOST,
  NOT_HELD: WireCode.NOT_HELD,
  QUEUE_FULL: WireCode.QUEUE_FULL,
  DEADLOCK: WireCode.DEADLOCK,
  INVALID_ARGUMENT: WireCode.INVALID_ARGUMENT,
  UNSUPPORTED: WireCode.UNSUPPORTED,
  DURABILITY_UNAVAILABLE: WireCode.DURABILITY_UNAVAILABLE,
  STORE_UNAVAILABLE: WireCode.STORE_UNAVAILABLE,
  STORE_FAILURE: WireCode.STORE_FAILURE,
  UNAUTHORIZED: WireCode.UNAUTHORIZED,
  CLOSED: WireCode.CLOSED,
  STALE_FENCE: WireCode.STALE_FENCE,
};

const codes = new Map(Object.entries(wireCodes).map(([code, wire]) => [wire, code as ErrorCode]));

export interface FailureFields {
  readonly code: WireCode;
  readonly message: string;
  readonly key: string;
}

/**
 * What a caller is told. The cause stays here: it may name hosts and users that are nobody's business.
 *
 * That the store behind the server was closed is an outage of the server's to its clients, who can ask another.
 */
export function failureOf(error: unknown): FailureFields {
  if (!(error instanceof HoldfastError)) {
    return {
      code: WireCode.STORE_FAILURE,
      message: "The store failed. The server's log has the error.",
      key: "",
    };
  }
  const code = error.code === "CLOSED" ? WireCode.STORE_UNAVAILABLE : wireCodes[error.code];
  return { code, message: error.message, key: error.key ?? "" };
}

export function errorOf(failure: FailureFields): HoldfastError {
  const code = codes.get(failure.code) ?? "STORE_FAILURE";
  const details = { key: failure.key === "" ? undefined : failure.key };
  return storeError(code, failure.message, details);
}
