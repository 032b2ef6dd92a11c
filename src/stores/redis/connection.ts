/**
 * What the store needs of a Redis client, and how ioredis and node-redis offer it. Neither is imported: the application
 * brings its own, and these types name the few methods that are called.
 */
import { subscribe } from "node:diagnostics_channel";
import { HoldfastError, invalid } from "../../core/index.ts";
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
  /**
   * Grows when the client loses a connection, if it is one that by itself sends again what was not answered. The answer to what
   * was under way then may be that to a second copy.
   */
  readonly losses: number;
  /** Sends a command. `key` says where, in a cluster: the client takes it from the arguments, or is told. */
  send(key: string, command: string, args: readonly string[]): Promise<unknown>;
  /** Gives up the connection to where the key is, on which replies no longer belong to their commands. The client makes another. */
  startOver(key: string): void;
  /** Listens to a channel, on a connection of its own where the client needs one for that. */
  listen(channel: string, events: SubscriptionEvents): Subscription;
}

/** `remedy` says what to do about a prefix that the client itself puts before keys. */
export function connectionOver(
  client: RedisClient,
  remedy = "Pass keyPrefix to the store instead.",
): Connection {
  if (typeof client !== "object" || client === null) throw wrongClient();
  const { keyPrefix } = (client.options ?? {}) as { keyPrefix?: unknown };
  if (keyPrefix !== undefined && keyPrefix !== "") {
    throw invalid(
      `client must not have a keyPrefix of its own, because a script cannot know it, and this one has "${keyPrefix}". ${remedy}`,
    );
  }
  if ("call" in client && typeof client.call === "function") return overIoRedis(client);
  if ("sendCommand" in client && typeof client.sendCommand === "function") return overNodeRedis(client);
  throw wrongClient();
}

function overIoRedis(client: IoRedisClient): Connection {
  const cluster = client.isCluster === true;
  const lost = lossesOf(client, cluster ? "-node" : "close");
  return {
    cluster,
    get losses() {
      return lost.count;
    },
    async send(_key, command, args) {
      if (client.status === "end") throw closedClient("Create another client, and a store over it.");
      return client.call(command, ...args);
    },
    // It has not been seen to lose count, and offers no way to drop one connection of a cluster.
    startOver() {},
    listen(channel, events) {
      if (cluster) return sharedIoRedis(client, channel, events);
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
          disconnect: () => subscriber.disconnect(),
        },
        events,
      );
    },
  };
}

/** One listener for each client, however many stores there are over it. */
const lossesByClient = new WeakMap<IoRedisClient, { count: number }>();

function lossesOf(client: IoRedisClient, event: string): { readonly count: number } {
  const known = lossesByClient.get(client);
  if (known !== undefined) return known;
  const losses = { count: 0 };
  client.on(event, () => losses.count++);
  lossesByClient.set(client, losses);
  return losses;
}

/** A cluster keeps a connection for subscriptions by itself, and moves them to another node when one is lost. */
function sharedIoRedis(client: IoRedisClient, channel: string, events: SubscriptionEvents): Subscription {
  const onMessage = (from: unknown, message: unknown) => {
    if (from === channel) events.onMessage(String(message));
  };
  client.on("message", onMessage);
  return sharedConnection(
    () => client.subscribe(channel),
    () => {
      client.off("message", onMessage);
      return client.unsubscribe(channel);
    },
    events,
  );
}

function overNodeRedis(client: NodeRedisClient): Connection {
  const cluster = typeof client.nodeClient === "function";
  const sentinel = typeof client.getSentinelNode === "function";
  const lost = sentinel ? lossesOfNodeRedis() : undefined;
  const send = async (key: string, words: readonly string[]) => {
    if (!client.isOpen) throw closedClient("Call its connect() before the store is used.");
    if (cluster) return client.sendCommand(...([key, false, words] as never[]));
    return client.sendCommand(...((sentinel ? [false, words] : [words]) as never[]));
  };
  return {
    cluster,
    get losses() {
      // All but a sentinel reject what was not answered.
      return lost?.count ?? 0;
    },
    send: (key, command, args) => send(key, [command, ...args]),
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
          disconnect: () => subscriber.isOpen && subscriber.destroy(),
        },
        events,
      );
    },
  };
}

let nodeRedisLosses: { count: number } | undefined;

/**
 * How many connections node-redis has lost in this process. A sentinel tells of none of its own by an event; a channel of
 * diagnostics tells of all, from version 5.12 on. One of another client that is lost during a release does no harm: the release
 * is asked for again.
 */
function lossesOfNodeRedis(): { readonly count: number } {
  if (nodeRedisLosses !== undefined) return nodeRedisLosses;
  const losses = { count: 0 };
  subscribe("node-redis:connection:closed", () => losses.count++);
  nodeRedisLosses = losses;
  return losses;
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
      "A node-redis client has lost count of the replies on a connection, and gives all who use it those to other commands. Holdfast ends that connection, so that the client makes another one. Update node-redis: version 6 keeps count. See docs/stores/redis.md.",
      { type: "HoldfastWarning", code: "MIXED_UP_REPLIES" },
    );
  }
  return true;
}

function wrongClient(): HoldfastError {
  return invalid(
    "client must be an ioredis Redis or Cluster, or a node-redis client, cluster or sentinel; pass the client itself.",
  );
}

/** Nothing was sent, and waiting does not help: so it is not an outage. */
function closedClient(remedy: string): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    `The Redis client is not connected, and is not about to be. ${remedy} At the end, close the store before the client.`,
  );
}
