/** The connections of a client, for the silence watch. What the types of a client do not show may be missing in another version of it. */
import { historyOf, IoRedisHistory, NodeRedisHistory } from "./client-history.ts";
import type { IoRedisClient, NodeRedisClient } from "./connection.ts";
import type { Link, Links, SilenceWatch } from "./silence.ts";

interface IoRedisNode extends IoRedisClient {
  readonly stream?: { readonly bytesRead: number; readonly destroyed: boolean; destroy(): void };
  readonly commandQueue?: {
    peekFront?(): { readonly command?: { readonly name: string; readonly args: readonly unknown[] } };
  };
}

interface IoRedisCluster {
  nodes?(role: "all"): readonly IoRedisNode[];
  readonly subscriber?: { getInstance?(): IoRedisNode | null };
}

interface NodeRedisNode {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  readonly options?: { readonly socket?: object };
  connect(): Promise<unknown>;
  destroy(): unknown;
  duplicate(overrides: object): NodeRedisNode;
  on(event: string, listener: () => void): unknown;
  once(event: string, listener: () => void): unknown;
  removeListener(event: string, listener: () => void): unknown;
  sendCommand(words: readonly string[]): Promise<unknown>;
}

interface NodeRedisGroup {
  readonly masters?: readonly { readonly client?: NodeRedisNode }[];
  readonly pubSubNode?: { readonly client?: NodeRedisNode };
  /** A sentinel shows its connection to the master in no other way. */
  _execute?(isReadonly: false, use: (master: NodeRedisNode) => Promise<Link[]>): Promise<Link[]>;
}

const ALWAYS_BLOCK = /^(blpop|brpop|brpoplpush|blmove|blmpop|bzpopmin|bzpopmax|bzmpop|wait|waitaof)$/i;
const BLOCK_IF_TOLD = /^(xread|xreadgroup)$/i;

export function linksOfIoRedis(client: IoRedisClient): Links {
  const cluster = client as unknown as IoRedisCluster;
  return {
    calling: () => (cluster.nodes?.("all") ?? [client as IoRedisNode]).flatMap(ioRedisLink),
    listening() {
      const subscriber = cluster.subscriber?.getInstance?.();
      return subscriber ? ioRedisLink(subscriber) : [];
    },
  };
}

/** None where there is no connection, nor an attempt at one. */
function ioRedisLink(client: IoRedisNode): Link[] {
  const { stream } = client;
  if (stream === undefined || stream === null || stream.destroyed) return [];
  const history = historyOf(client, IoRedisHistory);
  return [
    {
      client,
      mark: () => `${history.losses}:${client.stream?.bytesRead}`,
      blockedBy() {
        const { name, args = [] } = client.commandQueue?.peekFront?.()?.command ?? {};
        if (name === undefined) return undefined;
        const isToldTo = BLOCK_IF_TOLD.test(name) && args.some((arg) => /^block$/i.test(String(arg)));
        return isToldTo || ALWAYS_BLOCK.test(name) ? name.toUpperCase() : undefined;
      },
      ask: () => client.call("PING"),
      async askAnew(timeoutMs) {
        const other = client.duplicate({
          ...{ lazyConnect: true, enableOfflineQueue: true, enableReadyCheck: false, autoResubscribe: false },
          ...{ retryStrategy: null, sentinelRetryStrategy: null, commandTimeout: undefined },
        }) as IoRedisNode;
        other.on("error", () => {});
        const end = () => {
          other.disconnect();
          other.stream?.destroy();
        };
        const timer = setTimeout(end, timeoutMs);
        return other.call("PING").finally(() => {
          clearTimeout(timer);
          end();
        });
      },
      // A disconnect() would first wait for an answer.
      replace: () => client.stream?.destroy(),
    },
  ];
}

export function linksOfNodeRedis(client: NodeRedisClient, watch: SilenceWatch): Links {
  const { _execute: execute } = client as unknown as NodeRedisGroup;
  const isGroup = client.nodeClient !== undefined || client.getSentinelNode !== undefined;
  // They change with the servers of a cluster.
  const group = client as unknown as NodeRedisGroup;
  const clientsOf = (nodes: readonly ({ readonly client?: NodeRedisNode } | undefined)[]) =>
    nodes.flatMap((node) => (node?.client === undefined ? [] : nodeRedisLink(node.client, () => 0)));
  return {
    calling() {
      if (!isGroup) return nodeRedisLink(client as unknown as NodeRedisNode, () => watch.answers);
      if (group.masters !== undefined) return clientsOf(group.masters);
      return execute?.call(client, false, async (master) => nodeRedisLink(master, () => watch.answers)) ?? [];
    },
    listening: () => clientsOf([group.pubSubNode]),
  };
}

/** node-redis does not show what arrives. `answers` counts those of the store's own calls over this connection. */
function nodeRedisLink(client: NodeRedisNode, answers: () => number): Link[] {
  if (!client.isOpen) return [];
  const history = historyOf(client, NodeRedisHistory);
  return [
    {
      client,
      mark: () => `${history.losses}:${answers()}`,
      blockedBy: () => undefined,
      ask: () => client.sendCommand(["PING"]),
      async askAnew(timeoutMs) {
        const socket = { ...client.options?.socket, reconnectStrategy: false, connectTimeout: timeoutMs };
        const other = client.duplicate({ socket });
        other.on("error", () => {});
        const end = () => {
          if (other.isOpen) other.destroy();
        };
        const timer = setTimeout(end, timeoutMs);
        try {
          await other.connect();
          return await other.sendCommand(["PING"]);
        } finally {
          clearTimeout(timer);
          end();
        }
      },
      replace() {
        if (client.isReady) {
          client.destroy();
          connect(client);
        } else if (history.isGreeting) greetAnew(client, history);
      },
    },
  ];
}

/** Goes on trying by itself, as the client was told to. */
function connect(client: NodeRedisNode): void {
  client.connect().catch(() => {});
}

/** Two attempts to connect must not meet, so this waits until the one that is destroyed has ended. Version 5 begins it again before it does. */
function greetAnew(client: NodeRedisNode, history: NodeRedisHistory): void {
  let hasFailed = false;
  const onError = () => {
    hasFailed = true;
  };
  const goOn = () =>
    setImmediate(() => {
      history.isReplacing = false;
      if (!client.isOpen) connect(client);
    });
  history.isReplacing = true;
  client.on("error", onError);
  client.destroy();
  setImmediate(() => {
    client.removeListener("error", onError);
    if (hasFailed) client.once("reconnecting", goOn);
    else goOn();
  });
}
