/** Errors for sessions that could not be opened, or have ended. */
import type { IncomingHttpHeaders } from "node:http2";
import { HoldfastError, StoreUnavailableError } from "../../store/index.ts";

export function unavailable(url: string, cause: Error): HoldfastError {
  const root = rootOf(cause);
  const why = root.message.replace(/\.$/, "");
  return new StoreUnavailableError(
    `The lock server at ${url} cannot be reached: ${why}. Check its address, and that it is running.`,
    { cause: root },
  );
}

/** Node wraps the informative error of the system: "The pending stream has been canceled". */
function rootOf(error: Error): Error {
  return error.cause instanceof Error ? rootOf(error.cause) : error;
}

export function notAServer(url: string, why: string): HoldfastError {
  return new HoldfastError("STORE_FAILURE", `${url} is not a Holdfast server: ${why}.`);
}

// Statuses of gRPC.
const INVALID_ARGUMENT = 3;
const NOT_FOUND = 5;
const PERMISSION_DENIED = 7;
const FAILED_PRECONDITION = 9;
const UNIMPLEMENTED = 12;
const UNAUTHENTICATED = 16;

export function errorOfStatus(url: string, headers: IncomingHttpHeaders): HoldfastError {
  const status = Number(headers["grpc-status"]);
  const message = decodeMessage(String(headers["grpc-message"] ?? ""));
  if (status === UNAUTHENTICATED || status === PERMISSION_DENIED)
    return new HoldfastError("UNAUTHORIZED", message);
  if (status === UNIMPLEMENTED || status === NOT_FOUND) return notAServer(url, message);
  if (status === INVALID_ARGUMENT || status === FAILED_PRECONDITION)
    return new HoldfastError("STORE_FAILURE", `${url} ended the session: ${message}`);
  return new StoreUnavailableError(`The lock server at ${url} ended the session: ${message}`);
}

function decodeMessage(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
