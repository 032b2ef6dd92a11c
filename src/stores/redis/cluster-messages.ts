/**
 * What a cluster client of ioredis hears, by channel. One listener of its serves all who listen, as a lock server has many: Node takes
 * more than ten for a leak and warns of them, and each message would go past all of them. It is gone with the last of them.
 */
import type { IoRedisClient } from "./connection.ts";

type OnMessage = (message: string) => void;

class ClusterMessages {
  readonly #client: IoRedisClient;
  readonly #listeners = new Map<string, Set<OnMessage>>();
  readonly #hear = (channel: unknown, message: unknown) => {
    for (const tell of this.#listeners.get(String(channel)) ?? []) tell(String(message));
  };

  constructor(client: IoRedisClient) {
    this.#client = client;
  }

  /** Returns what ends it. */
  listen(channel: string, onMessage: OnMessage): () => void {
    if (this.#listeners.size === 0) this.#client.on("message", this.#hear);
    const listeners = this.#listeners.get(channel) ?? new Set();
    this.#listeners.set(channel, listeners.add(onMessage));
    return () => {
      if (!listeners.delete(onMessage) || listeners.size > 0) return;
      this.#listeners.delete(channel);
      if (this.#listeners.size === 0) this.#client.off("message", this.#hear);
    };
  }
}

const messages = new WeakMap<IoRedisClient, ClusterMessages>();

/** Of a client, for all stores over it. */
export function messagesOf(client: IoRedisClient): ClusterMessages {
  const known = messages.get(client) ?? new ClusterMessages(client);
  messages.set(client, known);
  return known;
}
