/**
 * What the store needs of a Redis client, and how ioredis and node-redis offer it. Neither is imported: the application
 * brings its own, and these types name the few methods that are called.
 */
import { HoldfastError, invalid } from "../../store/index.ts";
import {
  historyOf,
  IoClusterHistory,
  IoRedisHistory,
  lossesOfNodeRedis,
  NodeRedisHistory,
} from "./client-history.ts";
import { messagesOf } from "./cluster-messages.ts";
import { linksOfIoRedis, linksOfNodeRedis } from "./links.ts";
import { type SilenceWatch, silenceWatchOf } from "./silence.ts";
import {
  ownConnection,
  type Subscription,
  type SubscriptionEvents,
  sharedConnection,
} from "./subscription.ts";

/** An ioredis `Redis` or `Cluster`, of version 5 or 6. */
export interface IoRedisClient {
  call(command: string, ...args: string[]): Promise<unknown>;
  duplicate(override?: object): IoRedisClient;
  subscribe(...channels: string[]): Promise<unknown>;
  unsubscribe(...channels: string[]): Promise<unknown>;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
  off(event: string, listener: (...args: unknown[]) => void): unknown;
  disconnect(): void;
  readonly status: string;
  /** "subscriber" where it takes no other commands. A cluster has none, and needs none. */
  readonly mode?: string;
  readonly isCluster?: boolean;
  readonly options?: object;
}

/** A node-redis client, cluster or sentinel of version 5 or 6, as `createClient`, `createCluster` and `createSentinel` make them. */
export interface NodeRedisClient {
  // The three differ in what stands before the arguments.
  sendCommand(...args: never[]): Promise<unknown>;
  // A sentinel of version 5 has none, and needs none.
  duplicate?(): NodeRedisClient;
  connect(): Promise<unknown>;
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
  destroy(): unknown;
  readonly isOpen: boolean;
  nodeClient?(node: never): unknown;
  getSentinelNode?(): unknown;
  readonly options?: object | undefined;
}

export type RedisClient = IoRedisClient | NodeRedisClient;

/** One way to send commands, whatever the client. */
export interface Connection {
  readonly cluster: boolean;
  /** Whether sentinels tell the client which server is the master. */
  readonly sentinel: boolean;
  /** Grows when the client loses a connection. Not in a cluster of node-redis. */
  readonly losses: number;
  /**
   * Whether the client by itself sends again what was not answered when a connection is lost. The answer to what was under way then
   * may be that to a second copy.
   */
  readonly resends: boolean;
  /** The database that the client was made for. Undefined in a cluster, which has one, and where the client does not tell. */
  readonly database: number | undefined;
  /** Whether scripts select that database. Set once the server has shown that its user may. */
  selects: boolean;
  /**
   * Sends a command. `key` says where, in a cluster: the client takes it from the arguments, or is told. `releases`: whether it gives
   * back a claim.
   */
  send(key: string, command: string, args: readonly string[], releases?: boolean): Promise<unknown>;
  /** Gives up the connection to where the key is, on which replies no longer belong to their commands. The client makes another. */
  startOver(key: string): void;
  /** Listens to a channel, on a connection of its own where the client needs one for that. */
  listen(channel: string, events: SubscriptionEvents): Subscription;
}

/** `remedy` says what to do about a prefix that the client itself puts before keys, and `name` what messages call the client. */
export function connectionOver(
  client: RedisClient,
  remedy = "Pass keyPrefix to the store instead.",
  name = "client",
): Connection {
  const kind = kindOf(client);
  if (kind === undefined) throw wrongClient(name, client);
  const { keyPrefix } = (client.options ?? {}) as { keyPrefix?: unknown };
  if (keyPrefix !== undefined && keyPrefix !== "") {
    throw invalid(
      `${name} must not have its own keyPrefix, because a script cannot know it. It has "${keyPrefix}". ${remedy}`,
    );
  }
  return kind === "ioredis" ? overIoRedis(client as IoRedisClient) : overNodeRedis(client as NodeRedisClient);
}

/** Pipelines, transactions and pools can send commands as well, but neither hear of a connection nor subscribe. */
function kindOf(client: unknown): "ioredis" | "node-redis" | undefined {
  if (typeof client !== "object" || client === null) return undefined;
  const has = (...names: readonly string[]) =>
    names.every((name) => typeof (client as Record<string, unknown>)[name] === "function");
  if (!has("on", "subscribe", "unsubscribe")) return undefined;
  if (has("call", "duplicate", "off", "disconnect")) return "ioredis";
  return has("sendCommand", "connect", "destroy") ? "node-redis" : undefined;
}

function overIoRedis(client: IoRedisClient): Connection {
  const cluster = client.isCluster === true ? historyOf(client, IoClusterHistory) : undefined;
  const history = cluster ?? historyOf(client, IoRedisHistory);
  const watch = silenceWatchOf(client, () => linksOfIoRedis(client));
  const { db, sentinels } = (client.options ?? {}) as { db?: unknown; sentinels?: unknown };
  return {
    cluster: cluster !== undefined,
    sentinel: Array.isArray(sentinels),
    database: cluster === undefined && typeof db === "number" ? db : undefined,
    selects: false,
    get losses() {
      return history.losses;
    },
    resends: true,
    async send(key, command, args, releases = false) {
      if (client.status === "end") {
        throw closedClient(
          "is not connected and does not try to connect. Create another client, and a store over it.",
        );
      }
      if (client.mode === "subscriber") throw subscribedClient();
      return watch.send(key, releases, () =>
        cluster === undefined ? client.call(command, ...args) : cluster.send(command, args),
      );
    },
    // It has not been seen to lose count, and offers no way to drop one connection of a cluster.
    startOver() {},
    listen(channel, events) {
      if (cluster !== undefined) return sharedIoRedis(client, channel, events, watch);
      // What the application chose for its commands may be wrong for a connection that waits for years.
      const subscriber = client.duplicate({
        autoResubscribe: false,
        enableOfflineQueue: true,
        lazyConnect: false,
        maxRetriesPerRequest: null,
      });
      return ownConnection(
        {
          onMessage: (listener) => subscriber.on("message", (_, message) => listener(String(message))),
          onReady: (listener) => subscriber.on("ready", listener),
          onEnd: (listener) => subscriber.on("end", listener),
          onError: (listener) => subscriber.on("error", listener),
          subscribe: () => subscriber.subscribe(channel),
          ask: () => subscriber.call("PING"),
          disconnect: () => subscriber.disconnect(),
        },
        events,
      );
    },
  };
}

/** A cluster keeps a connection for subscriptions by itself, and moves them to another node when one is lost. */
function sharedIoRedis(
  client: IoRedisClient,
  channel: string,
  events: SubscriptionEvents,
  watch: SilenceWatch,
): Subscription {
  const leave = messagesOf(client).listen(channel, (message) => events.onMessage(message));
  return sharedConnection(
    () => client.subscribe(channel),
    () => {
      leave();
      return client.unsubscribe(channel);
    },
    events,
    watch,
  );
}

function overNodeRedis(client: NodeRedisClient): Connection {
  const cluster = typeof client.nodeClient === "function";
  const sentinel = typeof client.getSentinelNode === "function";
  const history = cluster || sentinel ? undefined : historyOf(client, NodeRedisHistory);
  const lost = sentinel ? lossesOfNodeRedis() : history;
  const watch = silenceWatchOf(client, (own) => linksOfNodeRedis(client, own));
  const send = async (key: string, words: readonly string[]) => {
    if (!client.isOpen && history?.isReplacing !== true)
      throw closedClient(notOpen(history?.wasOpen === true));
    const all = cluster ? [key, false, words] : sentinel ? [false, words] : [words];
    return client.sendCommand(...(all as never[]));
  };
  const { database = 0 } = (client.options ?? {}) as { database?: number };
  return {
    cluster,
    sentinel,
    // A sentinel does not tell its options.
    database: cluster || sentinel ? undefined : database,
    selects: false,
    get losses() {
      return lost?.losses ?? 0;
    },
    // All others reject what was not answered.
    resends: sentinel,
    send: (key, command, args, releases = false) =>
      watch.send(key, releases, () => send(key, [command, ...args])),
    startOver(key) {
      if (!mayStartOver(client)) return;
      // The server ends the connection, which the client takes for an outage: it fails what is unanswered and connects again.
      send(key, ["QUIT"]).catch(() => {});
    },
    listen(channel, events) {
      const subscriber = cluster || sentinel ? undefined : client.duplicate?.();
      if (subscriber === undefined) {
        return sharedConnection(
          () => client.subscribe(channel, events.onMessage),
          () => client.unsubscribe(channel),
          events,
          watch,
        );
      }
      return ownConnection(
        {
          onMessage: () => {},
          onReady: (listener) => listener(),
          onEnd: (listener) => subscriber.on("error", () => subscriber.isOpen || listener()),
          onError: (listener) => subscriber.on("error", listener),
          subscribe: async () => {
            await subscriber.connect();
            await subscriber.subscribe(channel, events.onMessage);
          },
          ask: () => subscriber.sendCommand(...([["PING"]] as never[])),
          disconnect: () => subscriber.isOpen && subscriber.destroy(),
        },
        events,
      );
    },
  };
}

/** When a connection of a client was given up last. */
const startedOverMs = new WeakMap<NodeRedisClient, number>();

/** Replies to what is still on its way are wrong as well: they must not end the connection that comes next. */
const START_OVER_EVERY_MS = 1_000;

function mayStartOver(client: NodeRedisClient): boolean {
  const nowMs = performance.now();
  const lastMs = startedOverMs.get(client);
  if (lastMs !== undefined && nowMs - lastMs < START_OVER_EVERY_MS) return false;
  startedOverMs.set(client, nowMs);
  if (lastMs === undefined) {
    process.emitWarning(
      "A node-redis client has lost count of the replies on a connection, so its callers get replies to other commands. Holdfast ends that connection, and the client makes a new one. Update to node-redis 6, which keeps count. See docs/stores/redis.md.",
      { type: "HoldfastWarning", code: "MIXED_UP_REPLIES" },
    );
  }
  return true;
}

function wrongClient(name: string, client: unknown): HoldfastError {
  return invalid(
    `${name} must be an ioredis Redis or Cluster, or a node-redis client, cluster or sentinel, not ${describe(client)}. Pass the client itself.`,
  );
}

/** What something is, without what it holds: an address may have a password in it. */
function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "a list";
  if (typeof value === "function") return `the function or class ${value.name || "without a name"}`;
  if (typeof value !== "object") return `a ${typeof value}`;
  const name = classNameOf(value);
  return name === undefined ? "an object with other methods" : `an object of class ${name}`;
}

/** The nearest class that has a name of its own: node-redis makes some that are just called "Class". */
function classNameOf(value: object): string | undefined {
  for (let at = Object.getPrototypeOf(value); at !== null; at = Object.getPrototypeOf(at)) {
    const name: unknown = at.constructor?.name;
    if (name !== "Class" && name !== "") return name === "Object" ? undefined : String(name);
  }
  return undefined;
}

/** Nothing was sent, and waiting does not help: so it is not an outage. */
function closedClient(what: string): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    `The Redis client ${what} At the end, close the store before the client.`,
  );
}

function notOpen(wasOpen: boolean): string {
  if (wasOpen) return "was closed. Call its connect() again, or create another client and a store over it.";
  return "is not connected and does not try to connect. Call its connect() before you use the store, also after it was closed.";
}

/** The same goes for a connection that takes nothing but subscriptions until the last of them is ended. */
function subscribedClient(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The Redis client is in subscriber mode, which allows no other commands. Pass its duplicate() to the store, or subscribe with the duplicate.",
  );
}
