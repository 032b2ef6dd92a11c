/** What a client has gone through, by its events. One history for each client, however many stores there are over it. */
import { subscribe } from "node:diagnostics_channel";
import type { IoRedisClient, NodeRedisClient } from "./connection.ts";
import { refusedAsCluster, replyCode } from "./errors.ts";

/** Counts the connections that were lost. */
export interface Losses {
  readonly losses: number;
}

export class IoRedisHistory implements Losses {
  losses = 0;

  constructor(client: IoRedisClient) {
    client.on("close", () => this.losses++);
  }
}

/**
 * A cluster client of ioredis keeps what it is asked until it is connected, and goes on trying when all of its servers refuse it. Only the
 * events tell why.
 */
export class IoClusterHistory implements Losses {
  losses = 0;
  readonly #client: IoRedisClient;
  readonly #waiting = new Set<(error: unknown) => void>();
  #lastError: unknown;
  /** Why it has no server, where that is what the last of them answered. */
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

  /** Sends, and fails when it turns out that no server takes the client for one of a cluster. */
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
  /** Whether it is connected, and the server has not yet answered what the client says at the beginning of a connection. */
  isGreeting = false;
  /** Whether it is closed for no longer than it takes to end an attempt to connect. */
  isReplacing = false;
  /** Whether it was connected, or about to be, and is no longer. */
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

/** The history of a client, from the first time that it was asked for. */
export function historyOf<C extends object, H extends Losses>(client: C, History: new (client: C) => H): H {
  const known = histories.get(client) ?? new History(client);
  histories.set(client, known);
  return known as H;
}

let nodeRedisLosses: { losses: number } | undefined;

/**
 * How many connections node-redis has lost in this process. A sentinel tells of none of its own by an event; a channel of
 * diagnostics tells of all, from version 5.12 on. One of another client that is lost during a release does no harm: the release
 * is asked for again.
 */
export function lossesOfNodeRedis(): Losses {
  if (nodeRedisLosses !== undefined) return nodeRedisLosses;
  const counted = { losses: 0 };
  subscribe("node-redis:connection:closed", () => counted.losses++);
  nodeRedisLosses = counted;
  return counted;
}
