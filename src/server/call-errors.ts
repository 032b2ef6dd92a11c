/** Converts errors of Holdfast for Connect and gRPC: a standard code, and a detail with the code of Holdfast. */
import { Code, ConnectError } from "@connectrpc/connect";
import { claims, failureOf } from "../protocol/index.ts";
import { type ErrorCode, HoldfastError } from "../store/index.ts";

const connectCodes: Readonly<Record<ErrorCode, Code>> = {
  ACQUIRE_TIMEOUT: Code.DeadlineExceeded,
  LEASE_LOST: Code.Aborted,
  NOT_HELD: Code.FailedPrecondition,
  QUEUE_FULL: Code.ResourceExhausted,
  DEADLOCK: Code.InvalidArgument,
  INVALID_ARGUMENT: Code.InvalidArgument,
  UNSUPPORTED: Code.Unimplemented,
  DURABILITY_UNAVAILABLE: Code.FailedPrecondition,
  STORE_UNAVAILABLE: Code.Unavailable,
  STORE_FAILURE: Code.Internal,
  UNAUTHORIZED: Code.PermissionDenied,
  CLOSED: Code.Unavailable,
  STALE_FENCE: Code.FailedPrecondition,
};

export const errorCodes: readonly string[] = Object.keys(connectCodes);

/** A caller without a known token. HTTP has another status for it than for a token without the permission. */
export class UnknownCaller extends HoldfastError {
  constructor() {
    super(
      "UNAUTHORIZED",
      "This server requires a token that it knows. Send the header `Authorization: Bearer <token>`.",
    );
  }
}

export function connectErrorOf(error: unknown): ConnectError {
  if (error instanceof ConnectError) return error;
  const failure = failureOf(error);
  const code = error instanceof HoldfastError ? connectCodes[error.code] : Code.Internal;
  return new ConnectError(
    failure.message,
    error instanceof UnknownCaller ? Code.Unauthenticated : code,
    undefined,
    [{ desc: claims.FailureSchema, value: { ...failure } }],
  );
}
