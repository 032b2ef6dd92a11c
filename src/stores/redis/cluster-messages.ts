/**
 * What a cluster client of ioredis hears, by channel. One listener of its serves all who listen, as a lock server has many: Node takes
 * more than ten for a leak and warns of them, and each message would go past all of them.
 */
import type { IoRedisClient } from "./connection.ts";

type OnMessage = (message: string) => void;

class ClusterMessages {
  readonly #listeners = new Map<string, Set<OnMessage>>();

  constructor(client: IoRedisClient) {
    client.on("message", (channel, message) => {
      for (const tell of this.#listeners.get(String(channel)) ?? []) tell(String(message));
    });
  }

  /** Returns what ends it. */
  listen(channel: string, onMessage: OnMessage): () => void {
    const listeners = this.#listeners.get(channel) ?? new Set();
    this.#listeners.set(channel, listeners.add(onMessage));
    return () => {
      listeners.delete(onMessage);
      if (listeners.size === 0 && this.#listeners.get(channel) === listeners) this.#listeners.delete(channel);
    };
  }
}

const messages = new WeakMap<IoRedisClient, ClusterMessages>();

/** Of a client, from the first time that they were asked for, however many stores there are over it. */
export function messagesOf(client: IoRedisClient): ClusterMessages {
  const known = messages.get(client) ?? new ClusterMessages(client);
  messages.set(client, known);
  return known;
}
