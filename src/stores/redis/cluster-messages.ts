/**
 * The messages of a cluster client of ioredis by channel. One event listener serves all owners: Node warns of a leak from eleven on, and
 * each message would call all of them.
 */
import type { IoRedisClient } from "./client.ts";

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

  /** Returns a function that stops listening. */
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

/** All stores over a client share its messages. */
export function messagesOf(client: IoRedisClient): ClusterMessages {
  const known = messages.get(client) ?? new ClusterMessages(client);
  messages.set(client, known);
  return known;
}
