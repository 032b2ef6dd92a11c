/** Opens stores by URL, for the command line and the server. Applications pass their own database clients to stores instead. */
import { checkOptionNames, HoldfastError, invalid, type Store } from "../store/index.ts";
import type { RemoteTls } from "../stores/remote/index.ts";
import { redisClient } from "./redis-client.ts";
import { credentialsOf, decoded, hostsOf, namedHostsOf, readBy, withScheme } from "./store-url.ts";

export interface OpenStoreOptions {
  /** The bearer token for a lock server (`holdfast:`, `holdfasts:`). It is not part of the URL, because URLs are logged and shared. */
  readonly token?: string;
  /** Certificates, for `holdfasts:`. */
  readonly tls?: RemoteTls;
}

type Open = (url: string, options: OpenStoreOptions) => Promise<Opened>;

interface Opened {
  readonly store: Store;
  /** Closes the client, after the store. */
  end(): unknown;
}

const openers: Readonly<Record<string, Open>> = {
  "memory:": openMemory,
  "file:": openFile,
  "redis:": openRedis,
  "rediss:": openRedis,
  "postgres:": openPostgres,
  "postgresql:": openPostgres,
  "mysql:": openMysql,
  "mariadb:": openMysql,
  "mongodb:": openMongodb,
  "mongodb+srv:": openMongodb,
  "etcd:": openEtcd,
  "etcds:": openEtcd,
  "holdfast:": openServer,
  "holdfasts:": openServer,
};

export const storeSchemes: readonly string[] = Object.keys(openers);

/**
 * Opens a store by its URL. The database client is imported on demand and closed with the store. Missing tables are created. For
 * lock servers it connects first, and rejects with `STORE_UNAVAILABLE` if no server answers.
 *
 * @example
 * const locks = createLocks(await openStore("redis://localhost:6379"));
 */
export async function openStore(url: string, options: OpenStoreOptions = {}): Promise<Store> {
  if (typeof url !== "string") throw invalid("url must be a string, such as redis://localhost:6379.");
  checkOptionNames("openStore", options, { token: true, tls: true });
  const { scheme, url: known } = withScheme(url);
  const open = Object.hasOwn(openers, scheme) ? openers[scheme] : undefined;
  if (open === undefined) {
    // Not the URL itself: it may contain a password.
    const problem = scheme === "" ? "does not begin with a scheme" : `begins with ${JSON.stringify(scheme)}`;
    throw invalid(`url must begin with one of ${storeSchemes.join(", ")}, but it ${problem}.`);
  }
  return closingClient(await open(known, options));
}

/** Makes `close` of the store close the client as well. */
function closingClient({ store, end }: Opened): Store {
  const close = store.close.bind(store);
  let closed: Promise<void> | undefined;
  store.close = () => {
    closed ??= close().finally(end);
    return closed;
  };
  return store;
}

async function openMemory(url: string): Promise<Opened> {
  if (url !== "memory:") throw invalid(`url must be just "memory:", not "${url}".`);
  const { memoryStore } = await import("../stores/memory/index.ts");
  return { store: memoryStore(), end: () => {} };
}

async function openFile(url: string): Promise<Opened> {
  const rest = url.slice("file:".length);
  if (/^\/\/(?!\/)/.test(rest)) {
    throw invalid(
      "url must not name a host behind file://. Write file:./relative/folder or file:///absolute/folder.",
    );
  }
  const path = decoded(rest.replace(/^\/\/(?=\/)/, ""));
  if (path === "") throw invalid('url must name a folder after "file:", such as file:./locks.');
  const { fileStore } = await import("../stores/file/index.ts");
  return { store: fileStore(path), end: () => {} };
}

async function openRedis(url: string): Promise<Opened> {
  const ioredis = await load("ioredis", "redis:", () => import("ioredis"));
  const { redisStore } = await import("../stores/redis/index.ts");
  const client = redisClient(url, ioredis);
  return { store: redisStore(client), end: () => client.disconnect() };
}

async function openPostgres(url: string): Promise<Opened> {
  hostsOf(url);
  const { Client, Pool } = (await load("pg", "postgres:", () => import("pg"))).default;
  const { postgresStore } = await import("../stores/postgres/index.ts");
  // Validates the URL, which a pool reads only when it connects.
  readBy("pg", url, () => new Client({ connectionString: url }));
  const pool = new Pool({ connectionString: url });
  pool.on("error", () => {});
  return { store: postgresStore(pool, { autoMigrate: true }), end: () => pool.end() };
}

async function openMysql(url: string): Promise<Opened> {
  hostsOf(url);
  const { createPool } = await load("mysql2", "mysql:", () => import("mysql2/promise"));
  const { mysqlStore } = await import("../stores/mysql/index.ts");
  const pool = readBy("mysql2", url, () => createPool(url.replace(/^mariadb:/, "mysql:")));
  return { store: mysqlStore(pool, { autoMigrate: true }), end: () => pool.end() };
}

async function openMongodb(url: string): Promise<Opened> {
  namedHostsOf(url);
  const { MongoClient } = await load("mongodb", "mongodb:", () => import("mongodb"));
  const { mongodbStore } = await import("../stores/mongodb/index.ts");
  const client = readBy("mongodb", url, () => new MongoClient(url));
  // The database of the URL, or "test" if it names none.
  return { store: mongodbStore(client.db()), end: () => client.close() };
}

async function openEtcd(url: string): Promise<Opened> {
  const protocol = url.startsWith("etcds:") ? "https" : "http";
  const hosts = namedHostsOf(url).map(({ host, port = 2_379 }) => `${protocol}://${bracketed(host)}:${port}`);
  const { Etcd3 } = await load("etcd3", "etcd:", () => import("etcd3"));
  const { etcdStore } = await import("../stores/etcd/index.ts");
  const { username, password } = credentialsOf(url);
  const client = readBy("etcd3", url, () => {
    return new Etcd3(username === "" ? { hosts } : { hosts, auth: { username, password } });
  });
  return { store: etcdStore(client), end: () => client.close() };
}

/** The default port of a lock server. */
const SERVER_PORT = 7_420;

/** Several hosts are servers over one store: holdfast://one:7420,two:7420. */
async function openServer(url: string, { token, tls }: OpenStoreOptions): Promise<Opened> {
  if (/^[a-z+]+:\/\/[^/?#]*@/.test(url)) {
    throw invalid(
      "url must not contain the token of a lock server, because URLs appear in logs and process lists. " +
        "Pass the option token, or HOLDFAST_TOKEN to the holdfast command.",
    );
  }
  if (!/^[a-z+]+:\/\/[^/?#]*\/?$/.test(url)) {
    throw invalid("url must have only the hosts of lock servers, such as holdfast://localhost:7420.");
  }
  const protocol = url.startsWith("holdfasts:") ? "https" : "http";
  if (protocol === "http" && tls !== undefined) {
    throw invalid(
      "tls requires an encrypted connection, and holdfast: is not encrypted. Write holdfasts:// instead.",
    );
  }
  const { connectRemote } = await import("../stores/remote/index.ts");
  const urls = namedHostsOf(url).map(({ host, port = SERVER_PORT }) => {
    return `${protocol}://${bracketed(host)}:${port}`;
  });
  const store = await connectRemote(urls, {
    ...(token !== undefined && { token }),
    ...(tls !== undefined && { tls }),
  });
  return { store, end: () => {} };
}

/** A host as it is written in a URL: IPv6 addresses have brackets. */
function bracketed(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

/** Imports a client. If it is missing, the error has the command that installs it. */
async function load<T>(name: string, scheme: string, importIt: () => Promise<T>): Promise<T> {
  try {
    return await importIt();
  } catch (cause) {
    if ((cause as { code?: unknown }).code !== "ERR_MODULE_NOT_FOUND") throw cause;
    throw new HoldfastError(
      "UNSUPPORTED",
      `A ${scheme} store needs the package ${name}, which is not installed. Run: npm install ${name}`,
      { cause },
    );
  }
}
