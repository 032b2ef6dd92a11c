/** What the errors of Redis and of its clients mean. Told apart by code and class, and by the rest of the text only where there is no code. */
import { classesOf, HoldfastError, isMistake, StoreUnavailableError } from "../../store/index.ts";

/** Answers of a server that cannot serve now, but may in a moment or elsewhere. */
const unavailable: Readonly<Record<string, string>> = {
  READONLY: "This server is a replica, as after a failover. Point the client at the master.",
  MOVED: "The cluster is moving keys between servers.",
  ASK: "The cluster is moving keys between servers.",
  TRYAGAIN: "The cluster is moving keys between servers.",
  CLUSTERDOWN: "The cluster has no majority, or no node serves these keys. Check its nodes.",
  MASTERDOWN: "This server is a replica that has lost its master. Check the master.",
  LOADING: "The server is starting. The store tries again.",
  OOM: "The server is out of memory. Raise maxmemory, and keep maxmemory-policy noeviction, because other policies may evict locks.",
  BUSY: "A script blocks the server. Find the client that runs it.",
  NOREPLICAS: "The server has fewer replicas than min-replicas-to-write. Check its replicas.",
  MISCONF: "The server cannot save to its disk, so it accepts no writes. Look at its log.",
  NOSCRIPT: "The server has lost the script that it just received. The store tries again.",
  UNBLOCKED: "The server has changed its role. The store tries again.",
};

const unauthorized: Readonly<Record<string, string>> = {
  NOPERM: "The user of this connection lacks rights. docs/stores/redis.md lists the rights to grant.",
  NOAUTH: "The server requires a login. Give the client a username and a password.",
  WRONGPASS: "The username or the password of the client is wrong. Correct its options.",
};

const failures: Readonly<Record<string, string>> = {
  WRONGTYPE: "A key of another type has the name of a lock. Choose another keyPrefix.",
  CROSSSLOT: "The keys of a call are on several servers of a cluster. Pass a cluster client.",
};

/** What is told of an operation that failed, where others of its batch did not: `text` is what a command of the script answered. */
export function failedAlone(partition: string, key: string, text: string): HoldfastError {
  const cause = new Error(text);
  const code = codeIn(text);
  if (code !== undefined && code !== "WRONGTYPE") return meaningOf(code, cause, key);
  return new HoldfastError(
    "STORE_FAILURE",
    `Another program changed the data of the lock "${key}" in Redis. Check the fields "${key}" and "" of the hash "${partition}:locks", and the key "${partition}:claims:${key}" and its siblings (held, limits, waiting, queue). Delete the foreign data, or choose another keyPrefix.`,
    { key, cause },
  );
}

/**
 * A release of which the client sent two copies found nothing: the first may have released the claim. Whoever asks again knows
 * that it does, and what to make of the answer.
 */
export function unsureOfRelease(key: string): HoldfastError {
  return new StoreUnavailableError(
    "The connection was lost during a release, and the client sent the command again. Whether the claim existed is unknown.",
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
  const what = failures[code] ?? "The cause has the server's text.";
  return new HoldfastError("STORE_FAILURE", `Redis answered ${code}. ${what}`, details);
}

/** What the servers told a cluster client that asked them for the others. `error` is the answer of the last one. */
export function refusedAsCluster(error: unknown): HoldfastError {
  if (replyCode(error) !== "ERR") return mapError(error);
  return new HoldfastError(
    "STORE_FAILURE",
    "No server accepted the cluster client. The cause has the text of the last one. For a single server pass Redis of ioredis instead of Cluster; with Sentinel, pass it the sentinels.",
    { cause: error },
  );
}

function clientError(error: unknown): HoldfastError {
  // Where no server of a cluster could be used, the client tells what the last one said.
  const { lastNodeError } = Object(error) as { lastNodeError?: unknown };
  if (replyCode(lastNodeError) !== undefined) return mapError(lastNodeError);
  if (isMistake(error)) {
    return new HoldfastError("STORE_FAILURE", "The Redis client failed. The cause has its text.", {
      cause: error,
    });
  }
  return new StoreUnavailableError(
    "Redis is unavailable: the client cannot reach it, or got no answer. Check that it runs, and its address.",
    {
      cause: error,
    },
  );
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
