/**
 * The Redis client of a URL. Its commands fail with the reason if the server cannot be reached. ioredis by itself queues them and
 * reconnects without end.
 */
import type { Cluster, Redis } from "ioredis";
import { classesOf, HoldfastError, invalid, StoreUnavailableError } from "../store/index.ts";
import { credentialsOf, type Host, namedHostsOf, pathOf, readBy } from "./store-url.ts";

export interface Ioredis {
  readonly Redis: typeof Redis;
  readonly Cluster: typeof Cluster;
}

/** Several hosts are the nodes of a cluster: redis://one:6379,two:6379. */
export function redisClient(url: string, ioredis: Ioredis): Redis | Cluster {
  const hosts = namedHostsOf(url);
  return hosts.length === 1 ? singleServer(url, hosts[0], ioredis) : cluster(url, hosts, ioredis);
}

function singleServer(url: string, host: Host | undefined, { Redis }: Ioredis): Redis {
  const client = readBy("ioredis", url, () => new Redis(url));
  const outage = failDuringOutage(client);
  client.on("error", (error: unknown) => {
    const { command } = Object(error) as { command?: { name?: unknown; args?: unknown } };
    // The arguments of a refused login contain the password.
    if (command?.name === "auth") command.args = [];
    if (command?.name === "select") {
      outage.begin(wrongDatabase(pathOf(url), error));
      // Disconnects before the client uses database 0. It becomes ready only after this.
      client.disconnect(true);
    } else if (client.status !== "ready" && isSystemError(error)) {
      outage.begin(unreachable(`${host?.host}:${host?.port ?? REDIS_PORT}`, error));
    }
  });
  return client;
}

function cluster(url: string, hosts: readonly Host[], { Cluster }: Ioredis): Cluster {
  if (!["", "/", "/0"].includes(pathOf(url))) {
    throw invalid(
      "url must not name a database after several hosts, because a Redis Cluster has only database 0.",
    );
  }
  const names = hosts.map(({ host, port }) => `${host}:${port ?? REDIS_PORT}`).join(", ");
  const client = new Cluster(
    hosts.map(({ host, port }) => ({ host, port: port ?? REDIS_PORT })),
    {
      redisOptions: clusterOptions(url),
      clusterRetryStrategy(attempt, reason) {
        // The client reports a host without an address only here.
        if (reason !== undefined) outage.begin(unreachable(names, reason));
        return Math.min(100 + attempt * 2, 2_000);
      },
    },
  );
  const outage = failDuringOutage(client);
  client.on("error", (error: unknown) => {
    const { lastNodeError } = Object(error) as { lastNodeError?: unknown };
    // The answer of a server is more specific than the outer error, and the store can map it.
    const isAnswer = classesOf(lastNodeError).includes("ReplyError");
    outage.begin(isAnswer ? lastNodeError : unreachable(names, error));
  });
  return client;
}

const REDIS_PORT = 6_379;

function clusterOptions(url: string): { username?: string; password?: string; tls?: object } {
  const { username, password } = credentialsOf(url);
  return {
    ...(username === "" ? {} : { username }),
    ...(password === "" ? {} : { password }),
    ...(url.startsWith("rediss:") ? { tls: {} } : {}),
  };
}

interface Outage {
  /** The last attempt to connect failed with this error. */
  begin(error: unknown): void;
}

/**
 * Makes every command fail with the error of an outage until the client is ready. Commands that ioredis has queued are still sent
 * later, which is safe for every request that was given up.
 */
function failDuringOutage(client: Redis | Cluster): Outage {
  let outage: { readonly error: unknown } | undefined;
  const waiting = new Set<(error: unknown) => void>();
  const call = client.call.bind(client) as (...words: string[]) => Promise<unknown>;
  const callOrFail = (...words: string[]): Promise<unknown> => {
    if (outage !== undefined) return Promise.reject(outage.error);
    if (client.status === "ready") return call(...words);
    return new Promise((resolve, reject) => {
      waiting.add(reject);
      call(...words)
        .then(resolve, reject)
        .finally(() => waiting.delete(reject));
    });
  };
  Object.assign(client, { call: callOrFail });
  client.on("ready", () => {
    outage = undefined;
  });
  return {
    begin(error) {
      outage = { error };
      for (const reject of waiting) reject(error);
      waiting.clear();
    },
  };
}

/** Errors of the system, of name resolution and of TLS have a code. Answers of a server have none. */
function isSystemError(error: unknown): boolean {
  return typeof (Object(error) as { code?: unknown }).code === "string";
}

function unreachable(hosts: string, cause: unknown): HoldfastError {
  const { code } = Object(cause) as { code?: unknown };
  const why = typeof code === "string" ? ` (${code})` : "";
  return new StoreUnavailableError(
    `Redis is unavailable: there is no connection to ${hosts}${why}. Check the host and the port of the URL, and that the server is up.`,
    { cause },
  );
}

function wrongDatabase(path: string, cause: unknown): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    `Redis refuses the database "${path.slice(1)}" of the URL. Use a number below its setting "databases", by default 0 to 15.`,
    { cause },
  );
}
