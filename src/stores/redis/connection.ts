/**
 * What the store needs of a Redis client, and how ioredis and node-redis offer it. Neither is imported: the application
 * brings its own, and these types name the few methods that are called.
 */
import { type HoldfastError, invalid } from "../../core/index.ts";

/** An ioredis `Redis` or `Cluster`. */
export interface IoRedisClient {
  call(command: string, ...args: string[]): Promise<unknown>;
  duplicate(): IoRedisClient;
  subscribe(...channels: string[]): Promise<unknown>;
  unsubscribe(...channels: string[]): Promise<unknown>;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
  off(event: string, listener: (...args: unknown[]) => void): unknown;
  disconnect(): void;
  readonly status: string;
  readonly isCluster?: boolean;
  nodes?(role: "master"): IoRedisClient[];
}

/** A node-redis client, cluster or sentinel, as `createClient`, `createCluster` and `createSentinel` make them. */
export interface NodeRedisClient {
  // The three differ in what stands before the arguments.
  sendCommand(...args: never[]): Promise<unknown>;
  duplicate(): NodeRedisClient;
  connect(): Promise<unknown>;
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
  destroy(): void;
  readonly isOpen: boolean;
  readonly masters?: readonly unknown[];
  nodeClient?(node: never): unknown;
  getSentinelNode?(): unknown;
}

export type RedisClient = IoRedisClient | NodeRedisClient;

/** One way to send commands, whatever the client. */
export interface Connection {
  readonly cluster: boolean;
  /** Sends a command. `key` says where, in a cluster. */
  send(key: string, command: string, args: readonly string[]): Promise<unknown>;
  /** The servers that hold keys: one, or the masters of a cluster. */
  nodes(): Promise<readonly ((command: string, args: readonly string[]) => Promise<unknown>)[]>;
  /** Listens to a channel, on a connection of its own where the client needs one for that. */
  listen(channel: string, listener: (message: string) => void, onBroken: () => void): Promise<Subscription>;
}

export interface Subscription {
  end(): void;
}

export function connectionOver(client: RedisClient): Connection {
  if (typeof client !== "object" || client === null) throw wrongClient();
  if ("call" in client && typeof client.call === "function") return overIoRedis(client);
  if ("sendCommand" in client && typeof client.sendCommand === "function") return overNodeRedis(client);
  throw wrongClient();
}

function overIoRedis(client: IoRedisClient): Connection {
  const cluster = client.isCluster === true;
  return {
    cluster,
    send: (_key, command, args) => client.call(command, ...args),
    async nodes() {
      const nodes = cluster ? (client.nodes?.("master") ?? []) : [client];
      return nodes.map((node) => (command, args) => node.call(command, ...args));
    },
    async listen(channel, listener, onBroken) {
      // A cluster keeps a connection for subscriptions by itself; a single client would be taken over by one.
      const subscriber = cluster ? client : client.duplicate();
      const onMessage = (from: string, message: string) => {
        if (from === channel) listener(message);
      };
      subscriber.on("message", onMessage as (...args: unknown[]) => void);
      if (!cluster) {
        subscriber.on("error", () => {});
        subscriber.on("close", onBroken);
      }
      await subscriber.subscribe(channel);
      return {
        end() {
          subscriber.off("message", onMessage as (...args: unknown[]) => void);
          if (cluster) subscriber.unsubscribe(channel).catch(() => {});
          else subscriber.disconnect();
        },
      };
    },
  };
}

function overNodeRedis(client: NodeRedisClient): Connection {
  const cluster = typeof client.nodeClient === "function";
  const sentinel = typeof client.getSentinelNode === "function";
  const own = cluster || sentinel;
  return {
    cluster,
    send(key, command, args) {
      const words = [command, ...args];
      if (cluster) return client.sendCommand(...([key, false, words] as never[]));
      return client.sendCommand(...((sentinel ? [false, words] : [words]) as never[]));
    },
    async nodes() {
      if (!cluster) return [(command, args) => this.send("", command, args)];
      const nodes = await Promise.all(
        (client.masters ?? []).map((node) => client.nodeClient?.(node as never)),
      );
      return nodes.map(
        (node) => (command, args) =>
          (node as NodeRedisClient).sendCommand(...([[command, ...args]] as never[])),
      );
    },
    async listen(channel, listener, onBroken) {
      const subscriber = own ? client : client.duplicate();
      if (!own) {
        subscriber.on("error", onBroken);
        await subscriber.connect();
      }
      await subscriber.subscribe(channel, listener);
      return {
        end() {
          if (own) subscriber.unsubscribe(channel).catch(() => {});
          else subscriber.destroy();
        },
      };
    },
  };
}

function wrongClient(): HoldfastError {
  return invalid(
    "client must be an ioredis Redis or Cluster, or a node-redis client, cluster or sentinel; pass the client itself.",
  );
}
