/**
 * The methods that the store calls on an ioredis or node-redis client, and one interface over both. Neither package is imported: the
 * application passes its own client.
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
  /** "subscriber" if the connection takes no other commands. A cluster has no mode. */
  readonly mode?: string;
  readonly isCluster?: boolean;
  readonly options?: object;
}

/** A node-redis client, cluster or sentinel of version 5 or 6, as `createClient`, `createCluster` and `createSentinel` make them. */
export interface NodeRedisClient {
  // The three differ in the parameters before the arguments.
  sendCommand(...args: never[]): Promise<unknown>;
  // A sentinel of version 5 has none.
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

/** A client of either package. */
export interface Connection {
  readonly cluster: boolean;
  /** Whether the client finds its master through sentinels. */
  readonly sentinel: boolean;
  /** The number of connections that the client lost. Always 0 in a cluster of node-redis. */
  readonly losses: number;
  /** Whether the client repeats unanswered commands after a lost connection, so that an answer may be that to a second copy. */
  readonly resends: boolean;
  /** The database of the client's options. Undefined in a cluster, and if the client does not show it. */
  readonly database: number | undefined;
  /** Whether scripts select that database. The readiness check sets this if the user has the right to. */
  selects: boolean;
  /** Sends a command to the server of `key`. `releases`: whether it releases a claim. */
  send(key: string, command: string, args: readonly string[], releases?: boolean): Promise<unknown>;
  /** Ends the connection to the server of `key`, whose replies no longer belong to their commands. The client makes another. */
  startOver(key: string): void;
  /** Listens to a channel, on a separate connection if the client needs one for that. */
  listen(channel: string, events: SubscriptionEvents): Subscription;
}

/** `remedy` completes the error about a key prefix of the client; `name` is the client's name in errors. */
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

/** Pipelines, transactions and pools also send commands, but have no connection events and no subscriptions. */
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
    // ioredis keeps count of its replies.
    startOver() {},
    listen(channel, events) {
      if (cluster !== undefined) return sharedIoRedis(client, channel, events, watch);
      // The application's options suit its commands, not a connection that waits for years.
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

/** A cluster client keeps a connection for subscriptions, and moves it to another node when one is lost. */
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
    // A sentinel does not show its options.
    database: cluster || sentinel ? undefined : database,
    selects: false,
    get losses() {
      return lost?.losses ?? 0;
    },
    // The others reject unanswered commands.
    resends: sentinel,
    send: (key, command, args, releases = false) =>
      watch.send(key, releases, () => send(key, [command, ...args])),
    startOver(key) {
      if (!mayStartOver(client)) return;
      // The server ends the connection. The client rejects unanswered commands and connects again.
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

/** The time of the latest end of a connection by client. */
const startedOverMs = new WeakMap<NodeRedisClient, number>();

/** Replies that are still under way are wrong as well, and must not end the next connection. */
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

/** Names the type of a value without its content: an address may contain a password. */
function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return "a list";
  if (typeof value === "function") return `the function or class ${value.name || "without a name"}`;
  if (typeof value !== "object") return `a ${typeof value}`;
  // node-redis makes some classes that are named "Class".
  let at = Object.getPrototypeOf(value);
  while (at?.constructor.name === "Class" || at?.constructor.name === "") at = Object.getPrototypeOf(at);
  const name = at?.constructor.name ?? "Object";
  return name === "Object" ? "an object with other methods" : `an object of class ${name}`;
}

/** Waiting does not help, so this is no outage. */
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

/** Waiting does not help here either. */
function subscribedClient(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The Redis client is in subscriber mode, which allows no other commands. Pass its duplicate() to the store, or subscribe with the duplicate.",
  );
}
