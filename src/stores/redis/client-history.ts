/** The connection events of a client. All stores over a client share its history. */
import { subscribe } from "node:diagnostics_channel";
import type { IoRedisClient, NodeRedisClient } from "./client.ts";
import { refusedAsCluster, replyCode } from "./errors.ts";

/** Counts lost connections. */
export interface Losses {
  readonly losses: number;
}

export class IoRedisHistory implements Losses {
  losses = 0;

  constructor(client: IoRedisClient) {
    client.on("close", () => this.losses++);
  }
}

/** A cluster client of ioredis queues commands until it is connected, also if all servers refuse it. Only its events show the reason. */
export class IoClusterHistory implements Losses {
  losses = 0;
  readonly #client: IoRedisClient;
  readonly #waiting = new Set<(error: unknown) => void>();
  #lastError: unknown;
  /** The answer of the last server that refused the client. */
  #refusal: unknown;

  constructor(client: IoRedisClient) {
    this.#client = client;
    client.on("-node", () => this.losses++);
    client.on("node error", (error) => {
      this.#lastError = error;
    });
    client.on("ready", () => {
      this.#lastError = undefined;
      this.#refusal = undefined;
    });
    client.on("close", () => {
      if (replyCode(this.#lastError) === undefined) return;
      this.#refusal = refusedAsCluster(this.#lastError);
      for (const reject of this.#waiting) reject(this.#refusal);
      this.#waiting.clear();
    });
  }

  /** Sends a command, and rejects when all servers have refused the client. */
  send(command: string, args: readonly string[]): Promise<unknown> {
    if (this.#client.status === "ready") return this.#client.call(command, ...args);
    if (this.#refusal !== undefined) return Promise.reject(this.#refusal);
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      this.#client
        .call(command, ...args)
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(reject));
    });
  }
}

export class NodeRedisHistory implements Losses {
  losses = 0;
  /** Whether the server has not yet answered the first commands of a new connection. */
  isGreeting = false;
  /** Whether the store is ending an attempt to connect, and the client is closed until the next one. */
  isReplacing = false;
  /** Whether the client was ever open. */
  #wasOpen: boolean;

  constructor(client: Pick<NodeRedisClient, "isOpen" | "on">) {
    this.#wasOpen = client.isOpen;
    client.on("reconnecting", () => this.losses++);
    client.on("connect", () => {
      this.#wasOpen = true;
      this.isGreeting = true;
    });
    for (const event of ["ready", "error", "end"]) {
      client.on(event, () => {
        this.isGreeting = false;
      });
    }
    client.on("end", () => this.losses++);
  }

  get wasOpen(): boolean {
    return this.#wasOpen;
  }
}

const histories = new WeakMap<object, Losses>();

/** The history of a client since the first call. */
export function historyOf<C extends object, H extends Losses>(client: C, History: new (client: C) => H): H {
  const known = histories.get(client) ?? new History(client);
  histories.set(client, known);
  return known as H;
}

let nodeRedisLosses: { losses: number } | undefined;

/**
 * The connections that node-redis lost in this process. A sentinel emits no event for its own, but from version 5.12 on a diagnostics channel
 * reports all. A lost connection of another client only repeats a release.
 */
export function lossesOfNodeRedis(): Losses {
  if (nodeRedisLosses !== undefined) return nodeRedisLosses;
  const counted = { losses: 0 };
  subscribe("node-redis:connection:closed", () => counted.losses++);
  nodeRedisLosses = counted;
  return counted;
}
