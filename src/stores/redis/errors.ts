import { type ErrorCode, HoldfastError, StoreUnavailableError } from "../../core/index.ts";

/** Answers of a server that cannot serve now, but may in a moment or elsewhere. */
const unavailable = new Set([
  "READONLY",
  "MOVED",
  "ASK",
  "CLUSTERDOWN",
  "TRYAGAIN",
  "CROSSSLOT",
  "MASTERDOWN",
  "LOADING",
  "OOM",
  "BUSY",
  "NOREPLICAS",
  "MISCONF",
  "NOSCRIPT",
  "UNBLOCKED",
]);

const unauthorized = new Set(["NOPERM", "NOAUTH", "WRONGPASS"]);

/** What an error of the client means. Told apart by the code that Redis puts first, never by the rest of the text. */
export function mapError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = replyCode(error);
  // Whatever is not an answer of the server is trouble on the way there.
  if (code === undefined || unavailable.has(code)) {
    return new StoreUnavailableError(`Redis is unavailable${code === undefined ? "" : ` (${code})`}.`, {
      cause: error,
    });
  }
  if (unauthorized.has(code)) return failure("UNAUTHORIZED", code, rights, error);
  if (code === "WRONGTYPE") return failure("STORE_FAILURE", code, collision, error);
  return failure("STORE_FAILURE", code, "The cause has the server's words.", error);
}

const rights = "The user of this connection lacks rights that docs/stores/redis.md lists.";
const collision = "A key of another kind stands where a lock should: choose another keyPrefix.";

function failure(errorCode: ErrorCode, code: string, what: string, cause: unknown): HoldfastError {
  return new HoldfastError(errorCode, `Redis answered ${code}. ${what}`, { cause });
}

/** The code of an error that the server answered, or undefined for one of the client's own. */
export function replyCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !replyErrors.has(error.constructor.name)) return undefined;
  return /^[A-Z]+(?=\s|$)/.exec(error.message)?.[0];
}

/** What ioredis and node-redis call an error that came as an answer. */
const replyErrors = new Set(["ReplyError", "ErrorReply", "SimpleError", "BlobError"]);
