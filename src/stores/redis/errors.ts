/** What the errors of Redis and of its clients mean. Told apart by code and class, and by the rest of the text only where there is no code. */
import { classesOf, HoldfastError, isMistake, StoreUnavailableError } from "../../core/index.ts";

/** Answers of a server that cannot serve now, but may in a moment or elsewhere. */
const unavailable: Readonly<Record<string, string>> = {
  READONLY: "This server is a replica, as after a failover; the client has to find the master.",
  MOVED: "The cluster is moving keys between servers.",
  ASK: "The cluster is moving keys between servers.",
  TRYAGAIN: "The cluster is moving keys between servers.",
  CLUSTERDOWN: "The cluster has no majority, or nobody serves these keys.",
  MASTERDOWN: "This server is a replica that has lost its master.",
  LOADING: "The server is starting.",
  OOM: "The server is out of memory: raise maxmemory, and keep maxmemory-policy noeviction, because others may evict locks.",
  BUSY: "A script is blocking the server.",
  NOREPLICAS: "The server has fewer replicas than min-replicas-to-write.",
  MISCONF: "The server cannot save to its disk, and therefore takes no writes.",
  NOSCRIPT: "The server has forgotten the script that it was just sent.",
  UNBLOCKED: "The server has changed its role.",
};

const unauthorized: Readonly<Record<string, string>> = {
  NOPERM: "The user of this connection lacks rights: docs/stores/redis.md lists what it needs.",
  NOAUTH: "The client has to log in: give it a username and a password.",
  WRONGPASS: "The username or the password of the client is wrong.",
};

const failures: Readonly<Record<string, string>> = {
  WRONGTYPE: "A key of another kind stands where a lock should: choose another keyPrefix.",
  CROSSSLOT: "The keys of a call are on several servers of a cluster: pass a cluster client.",
};

/** What is told of an operation that failed, where others of its batch did not: `text` is what a command of the script answered. */
export function failedAlone(partition: string, key: string, text: string): HoldfastError {
  const cause = new Error(text);
  const code = codeIn(text);
  if (code !== undefined && code !== "WRONGTYPE") return meaningOf(code, cause, key);
  return new HoldfastError(
    "STORE_FAILURE",
    `Something else than Holdfast wrote to Redis what belongs to the lock "${key}": the field "${key}" or the one without a name in the hash "${partition}:locks", the key "${partition}:claims:${key}", or the same with held, limits, waiting or queue. Delete it, or choose another keyPrefix.`,
    { key, cause },
  );
}

/**
 * A release of which the client sent two copies found nothing: the first may have released the claim. Whoever asks again knows
 * that it does, and what to make of the answer.
 */
export function unsureOfRelease(key: string): HoldfastError {
  return new StoreUnavailableError(
    "The connection was lost while a claim was released, and the client asked again by itself. Whether it was there is unknown.",
    { key },
  );
}

export function mapError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = replyCode(error);
  return code === undefined ? clientError(error) : meaningOf(code, error);
}

/** What an answer with this code means, to all that was asked for or to one key alone. */
function meaningOf(code: string, cause: unknown, key?: string): HoldfastError {
  const details = { cause, ...(key !== undefined && { key }) };
  const outage = unavailable[code];
  if (outage !== undefined) {
    return new StoreUnavailableError(`Redis is unavailable: it answered ${code}. ${outage}`, details);
  }
  const denied = unauthorized[code];
  if (denied !== undefined)
    return new HoldfastError("UNAUTHORIZED", `Redis answered ${code}. ${denied}`, details);
  const what = failures[code] ?? "The cause has the server's words.";
  return new HoldfastError("STORE_FAILURE", `Redis answered ${code}. ${what}`, details);
}

/** What the servers told a cluster client that asked them for the others. `error` is the answer of the last one. */
export function refusedAsCluster(error: unknown): HoldfastError {
  if (replyCode(error) !== "ERR") return mapError(error);
  return new HoldfastError(
    "STORE_FAILURE",
    "No server takes the cluster client for one of a cluster: the cause has the words of the last one. For a single server pass Redis of ioredis instead of Cluster; with Sentinel, pass it the sentinels.",
    { cause: error },
  );
}

function clientError(error: unknown): HoldfastError {
  // Where no server of a cluster could be used, the client tells what the last one said.
  const { lastNodeError } = Object(error) as { lastNodeError?: unknown };
  if (replyCode(lastNodeError) !== undefined) return mapError(lastNodeError);
  if (isMistake(error)) {
    return new HoldfastError("STORE_FAILURE", "The Redis client failed. The cause has its words.", {
      cause: error,
    });
  }
  return new StoreUnavailableError("Redis is unavailable: the client cannot reach it, or got no answer.", {
    cause: error,
  });
}

/** What ioredis and node-redis call an error that came as an answer. */
const replyErrors = new Set(["ReplyError", "ErrorReply", "SimpleError", "BlobError"]);

/** The code of an error that the server answered, or undefined for one of the client's own. */
export function replyCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !classesOf(error).some((name) => replyErrors.has(name))) return undefined;
  // Before version 7, what a command in a script answers stands behind the place where it was called.
  const text = error.message.replace(/^ERR Error running script .*@user_script: ?\d+: -?/s, "");
  return codeIn(text) ?? "ERR";
}

/**
 * A script that comes upon a key which is at another server. Its first key was not, so the cluster is moving the partition: what a
 * command outside of a script is told to try again then has no code in one.
 */
const MOVING = /^(ERR )?Script attempted to access a non local key/;

function codeIn(text: string): string | undefined {
  if (MOVING.test(text)) return "TRYAGAIN";
  return /^[A-Z]+(?=\s|$)/.exec(text)?.[0];
}
