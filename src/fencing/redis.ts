/** Fenced writes to Redis, one server, Sentinel or Cluster, through ioredis or node-redis. */
import { createHash } from "node:crypto";
import { checkInteger, HoldfastError, invalid } from "../store/index.ts";
import {
  type Connection,
  connectionOver,
  mapRedisError,
  nextCall,
  type RedisClient,
  replyCode,
  replyTo,
} from "../stores/redis/index.ts";
import { type Fenced, fenceOf, StaleFenceError } from "./fence.ts";
import { guarded, SET } from "./redis-script.ts";

export interface RedisFenceOptions {
  /**
   * The Redis key that the mark belongs to. Writes that are to keep the same stale holder away must name the same one; in a
   * cluster it has to be in the slot of the keys. Default: the key that is set, or the first key of the script.
   */
  readonly resource?: string;
  /**
   * How long the mark is kept after the latest write, in milliseconds, a day or more. It has to outlive the longest pause of a
   * holder that is to be refused. Default: for ever.
   */
  readonly keepMarkMs?: number;
}

export interface FencedSetOptions extends RedisFenceOptions {
  /** How long the value lives, in milliseconds. Default: for ever. */
  readonly ttlMs?: number;
}

export interface FencedScriptCall extends RedisFenceOptions {
  /** What the script sees as KEYS. */
  readonly keys: readonly string[];
  /** What the script sees as ARGV. Default: none. */
  readonly args?: readonly string[];
}

/** A Lua script that writes only under a fence. */
export interface FencedScript {
  /**
   * Resolves to what the script returns. Throws STALE_FENCE, and then the script was not run. `STORE_UNAVAILABLE` leaves open whether
   * it was.
   */
  run(client: RedisClient, lease: Fenced, call: FencedScriptCall): Promise<unknown>;
}

const DAY_MS = 86_400_000;

/**
 * Sets a key unless a newer fence has written before. Throws STALE_FENCE if one has, and nothing is changed.
 *
 * `STORE_UNAVAILABLE` leaves open whether it was set; to repeat it with the same lease is safe.
 *
 * @example
 * await fencedSet(redis, "report:7", JSON.stringify(report), lease);
 */
export async function fencedSet(
  client: RedisClient,
  key: string,
  value: string,
  lease: Fenced,
  options: FencedSetOptions = {},
): Promise<void> {
  const { ttlMs, ...rest } = options;
  if (typeof value !== "string")
    throw invalid(`value must be a string, not ${value === null ? "null" : typeof value}.`);
  const args = ttlMs === undefined ? [value] : [value, lifetime("ttlMs", ttlMs, 1)];
  await setting.run(client, lease, { ...rest, keys: [key], args });
}

/**
 * Wraps a script so that it runs only under a fence that is not older than any before. KEYS and ARGV are what the call says;
 * whatever the script returns comes back. The script must not take its keys from elsewhere.
 *
 * @example
 * const append = fencedScript("return redis.call('RPUSH', KEYS[1], ARGV[1])");
 * await append.run(redis, lease, { keys: ["audit:{7}"], args: ["paid"] });
 */
export function fencedScript(lua: string): FencedScript {
  if (typeof lua !== "string" || lua.trim() === "") throw invalid("lua must be the text of a script.");
  const text = guarded(lua);
  const digest = createHash("sha1").update(text).digest("hex");
  return {
    async run(client, lease, call) {
      const connection = connectionOver(client, "Write the prefix into the keys instead.");
      const { keys, args = [] } = call;
      checkTexts("keys", keys);
      checkTexts("args", args);
      const resource = call.resource ?? keys[0];
      if (resource === undefined || resource === "") {
        throw invalid("keys must not be empty unless resource is set, because the mark belongs to a key.");
      }
      const keepMs = call.keepMarkMs === undefined ? "0" : lifetime("keepMarkMs", call.keepMarkMs, DAY_MS);
      const markKey = markKeyIn(connection, resource);
      const fence = fenceOf(lease);
      const number = nextCall();
      const words = [String(keys.length + 1), markKey, ...keys, String(fence), keepMs, number, ...args];
      const reply = await evaluate(connection, markKey, text, digest, words);
      return outcome(replyTo(number, reply, connection, markKey), resource, markKey, fence);
    },
  };
}

const setting = fencedScript(SET);

/**
 * The key that has the mark of a key. It is in the same slot of a cluster: by the key's own hash tag where it has one, and by
 * the whole key otherwise. Undefined for a key without a hash tag that has braces in it, which no other key can share a slot with.
 */
export function fenceMarkKey(key: string): string | undefined {
  const open = key.indexOf("{");
  const close = open === -1 ? -1 : key.indexOf("}", open + 1);
  if (close > open + 1) return `${key}:holdfast-fence`;
  return key.includes("}") ? undefined : `holdfast-fence:{${key}}`;
}

function markKeyIn(connection: Connection, resource: string): string {
  const markKey = fenceMarkKey(resource);
  if (markKey !== undefined) return markKey;
  if (!connection.cluster) return `holdfast-fence:${resource}`;
  throw invalid(
    `"${resource}" has braces but no hash tag, so its mark cannot be in the same slot of the cluster. Add a hash tag, as in "{report}:7", or pass a resource that has one.`,
  );
}

/** The script is sent once to a server, and named by its digest from then on. */
async function evaluate(
  connection: Connection,
  key: string,
  text: string,
  digest: string,
  words: readonly string[],
): Promise<unknown> {
  try {
    try {
      return await connection.send(key, "EVALSHA", [digest, ...words]);
    } catch (error) {
      if (replyCode(error) !== "NOSCRIPT") throw error;
      return await connection.send(key, "EVAL", [text, ...words]);
    }
  } catch (error) {
    throw mapRedisError(error);
  }
}

function outcome(reply: readonly unknown[], resource: string, markKey: string, fence: bigint): unknown {
  const [, state, result = null] = reply;
  switch (Number(state)) {
    case 1:
      // A script may return an error instead of raising it.
      if (result instanceof Error) throw mapRedisError(result);
      return result;
    case 0:
      throw new StaleFenceError(resource, fence, BigInt(String(result)));
    default:
      throw new HoldfastError(
        "STORE_FAILURE",
        `Another program wrote to "${markKey}", the mark of "${resource}". Nothing was written. Stop all writers, and delete that key.`,
        { key: resource },
      );
  }
}

function lifetime(name: string, ms: number, min: number): string {
  return String(checkInteger(name, ms, min, Number.MAX_SAFE_INTEGER));
}

function checkTexts(name: string, texts: readonly string[]): void {
  if (Array.isArray(texts) && texts.every((text) => typeof text === "string")) return;
  throw invalid(`${name} must be a list of strings.`);
}
