/** Converts errors to and from their messages. */
import { type ErrorCode, HoldfastError, storeError } from "../store/index.ts";
import { ErrorCode as WireCode } from "./gen/holdfast/v1/claims_pb.ts";

export interface FailureFields {
  readonly code: WireCode;
  readonly message: string;
  readonly key: string;
}

/**
 * The error for a caller. It has no cause, which may name hosts and users of the server. A closed store is an outage for
 * clients, who can use another server.
 */
export function failureOf(error: unknown): FailureFields {
  if (!(error instanceof HoldfastError)) {
    return {
      code: WireCode.STORE_FAILURE,
      message: "The store failed. The server's log has the error.",
      key: "",
    };
  }
  const code = error.code === "CLOSED" ? WireCode.STORE_UNAVAILABLE : WireCode[error.code];
  return { code, message: error.message, key: error.key ?? "" };
}

export function errorOf(failure: FailureFields): HoldfastError {
  const name = WireCode[failure.code] ?? "UNSPECIFIED";
  const code = name === "UNSPECIFIED" ? "STORE_FAILURE" : (name as ErrorCode);
  return storeError(code, failure.message, { key: failure.key === "" ? undefined : failure.key });
}
