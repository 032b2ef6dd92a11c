import { checkOptionNames, invalid, type Store } from "../../core/index.ts";
import { type RedisClient, redisStore } from "../redis/index.ts";
import { type QuorumOptions, quorumStore } from "./quorum-store.ts";

export interface RedlockOptions extends Pick<QuorumOptions, "nodeTimeoutMs" | "backoffMs" | "clockDrift"> {
  /** What all keys of this store begin with, on every server. No braces. Default "holdfast". */
  readonly keyPrefix?: string;
  /** How many claims may wait for one key before `QUEUE_FULL`. Default 10,000. */
  readonly maxWaiters?: number;
  /**
   * Say "quorum" if every server has `appendonly yes` and `appendfsync always`, so that none forgets what it confirmed.
   * Default "ephemeral".
   */
  readonly durability?: "ephemeral" | "quorum";
}

/**
 * A store over independent Redis servers, of which a majority decides: it goes on when a minority of them is down. All
 * clients of a lock must name the same servers, in the same order.
 *
 * @example
 * const locks = createLocks(redlockStore([new Redis(6379, "a"), new Redis(6379, "b"), new Redis(6379, "c")]));
 */
export function redlockStore(clients: readonly RedisClient[], options: RedlockOptions = {}): Store {
  if (!Array.isArray(clients)) throw invalid("clients must be a list, one client for each server.");
  checkOptionNames("redlockStore", options, {
    keyPrefix: true,
    maxWaiters: true,
    nodeTimeoutMs: true,
    backoffMs: true,
    clockDrift: true,
    durability: true,
  });
  const { keyPrefix, maxWaiters, ...quorum } = options;
  const each = {
    ...(keyPrefix === undefined ? {} : { keyPrefix }),
    ...(maxWaiters === undefined ? {} : { maxWaiters }),
  };
  if (new Set(clients).size < clients.length)
    throw invalid("clients must be different: one for each server.");
  return quorumStore(
    clients.map((client) => redisStore(client, each)),
    { ...quorum, name: "redlock" },
  );
}
