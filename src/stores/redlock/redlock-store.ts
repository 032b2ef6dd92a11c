import { checkChoice, checkOptionNames, invalid, type QuorumMember, type Store } from "../../store/index.ts";
import { type Connection, connectionOver, type RedisClient, redisStore } from "../redis/index.ts";
import { MAX_NODES, type QuorumOptions, quorumStore } from "./quorum-store.ts";
import { Server, Servers } from "./servers.ts";

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
 * Rejects with `INVALID_ARGUMENT` when two of the clients turn out to lead to one server.
 *
 * @example
 * const locks = createLocks(redlockStore([new Redis(6379, "a"), new Redis(6379, "b"), new Redis(6379, "c")]));
 */
export function redlockStore(clients: readonly RedisClient[], options: RedlockOptions = {}): Store {
  checkOptionNames("redlockStore", options, {
    keyPrefix: true,
    maxWaiters: true,
    nodeTimeoutMs: true,
    backoffMs: true,
    clockDrift: true,
    durability: true,
  });
  const { keyPrefix, maxWaiters, durability = "ephemeral", ...quorum } = options;
  checkChoice("durability", durability, ["ephemeral", "quorum"]);
  const each = {
    ...(keyPrefix === undefined ? {} : { keyPrefix }),
    ...(maxWaiters === undefined ? {} : { maxWaiters }),
  };
  checkCount(clients);
  const connections = clients.map(connectionOf);
  if (new Set(clients).size < clients.length)
    throw invalid("clients must be different, one for each server.");
  const servers = new Servers(clients);
  const members = connections.map((connection, node): QuorumMember => {
    const client = clients[node] as RedisClient;
    return new Server(node, client, redisStore(client, each), connection, servers);
  });
  return quorumStore(members, { ...quorum, durability, name: "redlock" });
}

function checkCount(clients: readonly RedisClient[]): void {
  const given = Array.isArray(clients) ? String(clients.length) : "something else than a list";
  if (Array.isArray(clients) && clients.length >= 1 && clients.length <= MAX_NODES) return;
  throw invalid(
    `clients must be 1 to ${MAX_NODES} Redis clients in a list, one for each server, not ${given}.`,
  );
}

/** A failover among several servers may lose what the one before has confirmed, and with it the vote that was given. */
function connectionOf(client: RedisClient, node: number): Connection {
  const connection = connectionOver(client, undefined, `clients[${node}]`);
  if (!connection.cluster && !connection.sentinel) return connection;
  const group = connection.cluster ? "a cluster" : "a master that sentinels choose";
  throw invalid(
    `clients[${node}] must connect to one server, not to ${group}, where a failover may lose votes. Pass Redis of ioredis or createClient of node-redis with the address of one server, or use redisStore with this client alone.`,
  );
}
