/**
 * The Redis client of a URL. It tells why a server cannot be reached: by itself, ioredis keeps commands back and connects again and
 * again, so that whoever asks hears nothing but silence.
 */
import type { Cluster, Redis } from "ioredis";
import { classesOf, HoldfastError, invalid, StoreUnavailableError } from "../store/index.ts";
import { credentialsOf, type Host, namedHostsOf, pathOf, readBy } from "./store-url.ts";

/** What `ioredis` exports. */
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
  const trouble = tellingTrouble(client);
  client.on("error", (error: unknown) => {
    const { command } = Object(error) as { command?: { name?: unknown; args?: unknown } };
    // A login that was refused has its password among the arguments.
    if (command?.name === "auth") command.args = [];
    if (command?.name === "select") {
      trouble.is(wrongDatabase(pathOf(url), error));
      // The connection would be used with database 0. It has not been yet: the client asks whether the server is ready after this.
      client.disconnect(true);
    } else if (client.status !== "ready" && isSystemError(error)) {
      trouble.is(unreachable(`${host?.host}:${host?.port ?? REDIS_PORT}`, error));
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
        // A host without an address is told here, and nowhere else.
        if (reason !== undefined) trouble.is(unreachable(names, reason));
        return Math.min(100 + attempt * 2, 2_000);
      },
    },
  );
  const trouble = tellingTrouble(client);
  client.on("error", (error: unknown) => {
    const { lastNodeError } = Object(error) as { lastNodeError?: unknown };
    // What a server answered says more than that none was of use, and the store knows what it means. Why there is no connection
    // the client does not tell.
    const isAnswer = classesOf(lastNodeError).includes("ReplyError");
    trouble.is(isAnswer ? lastNodeError : unreachable(names, error));
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

interface Trouble {
  /** The last attempt to connect has failed for this. */
  is(error: unknown): void;
}

/**
 * Has every command fail with what is in the way of the client, from when that is known until it is ready. What was kept
 * back already goes out later all the same, and does what a request that was given up may always do.
 */
function tellingTrouble(client: Redis | Cluster): Trouble {
  let trouble: { readonly error: unknown } | undefined;
  const waiting = new Set<(error: unknown) => void>();
  const call = client.call.bind(client) as (...words: string[]) => Promise<unknown>;
  const telling = (...words: string[]): Promise<unknown> => {
    if (trouble !== undefined) return Promise.reject(trouble.error);
    if (client.status === "ready") return call(...words);
    return new Promise((resolve, reject) => {
      waiting.add(reject);
      call(...words)
        .then(resolve, reject)
        .finally(() => waiting.delete(reject));
    });
  };
  Object.assign(client, { call: telling });
  client.on("ready", () => {
    trouble = undefined;
  });
  return {
    is(error) {
      trouble = { error };
      for (const reject of waiting) reject(error);
      waiting.clear();
    },
  };
}

/** Errors of the system, of name resolution and of TLS have a code. What a server answered has none. */
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
