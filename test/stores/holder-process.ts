/** A process over a store of its own: it writes while it holds a lock, or takes turns at one. Tests pause and kill it. */
import type { Store } from "holdfast";
import { takeTurns } from "./turn-taker.ts";
import { writeWhileHeld } from "./writing-holder.ts";

/** The store of the process, and where it is: a folder, a port, ports or a URL. */
export interface Holder {
  readonly store: keyof typeof openers;
  target(): string;
}

interface Opened {
  readonly store: Store;
  end(): unknown;
}

const openers = {
  async etcd(hosts: string): Promise<Opened> {
    const [{ Etcd3 }, { etcdStore }] = await Promise.all([import("etcd3"), import("holdfast/etcd")]);
    const client = new Etcd3({ hosts });
    return { store: etcdStore(client), end: () => client.close() };
  },
  async file(folder: string): Promise<Opened> {
    const { fileStore } = await import("holdfast/file");
    return { store: fileStore(folder), end: () => {} };
  },
  async mongodb(url: string): Promise<Opened> {
    const [driver, { mongodbStore }] = await Promise.all([import("mongodb6"), import("holdfast/mongodb")]);
    const client = new driver.MongoClient(url);
    return { store: mongodbStore(client.db("faults")), end: () => client.close() };
  },
  async mysql(url: string): Promise<Opened> {
    const [{ createPool }, { mysqlStore }] = await Promise.all([
      import("mysql2/promise"),
      import("holdfast/mysql"),
    ]);
    const pool = createPool(url);
    return { store: mysqlStore(pool, { durability: "ephemeral" }), end: () => pool.end() };
  },
  async postgres(connectionString: string): Promise<Opened> {
    const [pg, { postgresStore }] = await Promise.all([import("pg"), import("holdfast/postgres")]);
    const pool = new pg.default.Pool({ connectionString });
    return { store: postgresStore(pool, { autoMigrate: true }), end: () => pool.end() };
  },
  async redis(port: string): Promise<Opened> {
    const [{ Redis }, { redisStore }] = await Promise.all([import("ioredis"), import("holdfast/redis")]);
    const client = new Redis(Number(port), "127.0.0.1");
    return { store: redisStore(client), end: () => client.disconnect() };
  },
  async redlock(ports: string): Promise<Opened> {
    const [{ Redis }, { redlockStore }] = await Promise.all([import("ioredis"), import("holdfast/redlock")]);
    const clients = ports.split(",").map((port) => new Redis(Number(port), "127.0.0.1"));
    return {
      store: redlockStore(clients),
      end: () => clients.forEach((client) => void client.disconnect()),
    };
  },
  async remote(url: string): Promise<Opened> {
    const { remoteStore } = await import("holdfast/remote");
    return { store: remoteStore(url), end: () => {} };
  },
};

const [kind, target = "", ttlMs, part] = process.argv.slice(2);
const { store, end } = await openers[kind as Holder["store"]](target);
const play = part === "take turns" ? takeTurns : writeWhileHeld;
await play(store, Number(ttlMs));
await end();
process.disconnect?.();
