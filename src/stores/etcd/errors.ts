/** What the errors of etcd and of its client mean. Told apart by class and code, never by the text. */
import { classesOf, HoldfastError, StoreUnavailableError } from "../../store/index.ts";

const OUTAGE = "The cluster has no leader, or this member cannot reach it. Check the health of the members.";
const SLOW =
  "The request timed out, and its result is unknown. The store tries again; check the health of the members.";
const BUSY =
  "The cluster is overloaded, its space is used up, or an answer exceeds the client's grpc.max_receive_message_length. For lack of space, compact and defragment it and disarm the alarm, or raise --quota-backend-bytes.";
const BROKEN_OFF = "The call was cut off, for instance by a lost connection. The store tries again.";
const RESTING =
  "The client avoids members that have failed, for a while. See the client's option faultHandling.";

/** Classes of errors after which asking again may succeed. */
export const unavailable: Readonly<Record<string, string>> = {
  GRPCUnavailableError: OUTAGE,
  GRPCDeadlineExceededError: SLOW,
  GRPCCancelledError: BROKEN_OFF,
  GRPCResourceExhastedError: BUSY,
  GRPCAbortedError: BROKEN_OFF,
  GRPCInternalError: BROKEN_OFF,
  GRPCUnknownError: OUTAGE,
  GRPCGenericError: OUTAGE,
  EtcdError: OUTAGE,
  EtcdWatchStreamEnded: BROKEN_OFF,
  // The lease that something hangs on is gone, which the next attempt takes into account.
  EtcdLeaseInvalidError: "An etcd lease has expired meanwhile. Try again.",
  // Of the policies of the client.
  BrokenCircuitError: RESTING,
  IsolatedCircuitError: RESTING,
  BulkheadRejectedError: RESTING,
  TaskCancelledError: SLOW,
};

const RIGHTS =
  "The user of this client lacks rights. Grant it to read and write all keys below the prefix, as docs/stores/etcd.md shows.";
const LOGIN = "The client's username or password is wrong. Correct its option auth.";

export const unauthorized: Readonly<Record<string, string>> = {
  EtcdPermissionDeniedError: RIGHTS,
  EtcdAuthenticationFailedError: LOGIN,
  EtcdInvalidAuthTokenError: LOGIN,
  EtcdUserNotFoundError: LOGIN,
  GRPCUnauthenticatedError: LOGIN,
};

export const failures: Readonly<Record<string, string>> = {
  GRPCInvalidArgumentError:
    "The server refuses the request. If its --max-txn-ops is below 128, pass that number as the option maxTxnOps.",
  GRPCFailedPreconditionError:
    "The server is not set up for the request. If its authentication is off, remove the client's option auth.",
  GRPCNotImplementedError: "The server does not know the request. Upgrade it to etcd 3.4 or newer.",
  GRPCNotFoundError: "The server gave an unexpected answer. The cause has its text.",
  GRPCAlreadyExistsError: "The server gave an unexpected answer. The cause has its text.",
  GRPCOutOfRangeError: "The server gave an unexpected answer. The cause has its text.",
  GRPCDataLossError: "The cluster has lost data. Repair its members before you use them.",
  GRPCProtocolError: "The server does not speak gRPC. Check that the address is the client port of etcd.",
  ClientClosedError: "The client was closed. Close the store first.",
  ClientRuntimeError: "The client failed. The cause has its text.",
};

/** The classes above, by the code that a stream tells in their place. */
export const classesByCode: Readonly<Record<number, string>> = {
  1: "GRPCCancelledError",
  2: "GRPCUnknownError",
  3: "GRPCInvalidArgumentError",
  4: "GRPCDeadlineExceededError",
  5: "GRPCNotFoundError",
  6: "GRPCAlreadyExistsError",
  7: "EtcdPermissionDeniedError",
  8: "GRPCResourceExhastedError",
  9: "GRPCFailedPreconditionError",
  10: "GRPCAbortedError",
  11: "GRPCOutOfRangeError",
  12: "GRPCNotImplementedError",
  13: "GRPCInternalError",
  14: "GRPCUnavailableError",
  15: "GRPCDataLossError",
  16: "GRPCUnauthenticatedError",
};

export function mapError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  for (const name of namesOf(error)) {
    const outage = unavailable[name];
    if (outage !== undefined)
      return new StoreUnavailableError(`etcd is unavailable. ${outage}`, { cause: error });
    const denied = unauthorized[name];
    if (denied !== undefined)
      return new HoldfastError("UNAUTHORIZED", `etcd refuses. ${denied}`, { cause: error });
    const failure = failures[name];
    if (failure !== undefined)
      return new HoldfastError("STORE_FAILURE", `etcd failed. ${failure}`, { cause: error });
  }
  if (isRecoverable(error))
    return new StoreUnavailableError(`etcd is unavailable. ${OUTAGE}`, { cause: error });
  return new HoldfastError("STORE_FAILURE", "The etcd client failed. The cause has its text.", {
    cause: error,
  });
}

/** The client keeps away from members that have failed, of which this is the last word. It has the host. */
export function restingError(last: Error): StoreUnavailableError {
  // gRPC leaves a note without a text at the end.
  const told = last.message.replace(/ Resolution note: $/, "");
  return new StoreUnavailableError(`etcd is unavailable. ${RESTING} The failure before that: ${told}`, {
    cause: last,
  });
}

/** The member that has told of itself is one that serves nobody, and nobody else has answered. */
export function learnerError(cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(
    "etcd is unavailable. The member that answers is a learner, which serves no requests. Give the client the hosts of voting members, or promote this one with etcdctl member promote.",
    { cause },
  );
}

/** Whether an error is of this class of the etcd3 package, or of one below it. */
export function isOfClass(error: unknown, name: string): boolean {
  return namesOf(error).includes(name);
}

/** The names of its classes, also where a stream tells a code in their place. */
function namesOf(error: unknown): readonly string[] {
  const { code } = Object(error) as { code?: unknown };
  const byCode = typeof code === "number" ? classesByCode[code] : undefined;
  return byCode === undefined ? classesOf(error) : [byCode, ...classesOf(error)];
}

/** The client marks what may pass, also where a bundler has renamed its classes. */
function isRecoverable(error: unknown): boolean {
  return Object.getOwnPropertySymbols(Object(error)).some(
    ({ description }) => description === "RecoverableError",
  );
}
