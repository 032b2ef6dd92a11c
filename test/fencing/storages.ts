/** A value in each kind of database, written with a guard and without, and locks in the same database. */
import type { Store } from "holdfast";
import {
  fencedSet,
  fencedUpdateOne,
  fenceMysql,
  fencePostgres,
  migrateMysqlFence,
  migratePostgresFence,
} from "holdfast/fencing";
import { mongodbStore } from "holdfast/mongodb";
import { mysqlStore } from "holdfast/mysql";
import { postgresStore } from "holdfast/postgres";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { MongoClient } from "mongodb6";
import { createPool } from "mysql2/promise";
import { Pool } from "pg";
import { canRunMariadb, startMariadb } from "../engines/mariadb.ts";
import { canRunMongodb, startMongodb } from "../engines/mongodb.ts";
import { canRunPostgres, startPostgres } from "../engines/postgres.ts";
import { canRunRedis, startRedis } from "../engines/redis.ts";

/** Which of the two values: the one that everybody may write, or the one behind the guard. */
export type Target = "plain" | "fenced";

export interface OpenStorage {
  readonly store: Store;
  /** Makes what the values need. Called once, by one. */
  prepare(): Promise<unknown>;
  write(target: Target, value: string, fence: bigint): Promise<unknown>;
  read(target: Target): Promise<unknown>;
  end(): Promise<unknown>;
}

export interface Storage {
  canRun(): boolean | Promise<boolean>;
  start(): Promise<{ readonly url: string; stop(): Promise<void> }>;
  open(url: string): Promise<OpenStorage>;
}

const resource = "register";

export const storages: Readonly<Record<string, Storage>> = {
  postgres: {
    canRun: canRunPostgres,
    start: startPostgres,
    async open(url) {
      const pool = new Pool({ connectionString: url });
      pool.on("error", () => {});
      const upsert =
        "insert into register values ($1, $2) on conflict (name) do update set value = excluded.value";
      return {
        store: postgresStore(pool, { autoMigrate: true }),
        async prepare() {
          await pool.query("create table register (name text primary key, value text)");
          await migratePostgresFence(pool);
        },
        async write(target, value, fence) {
          const client = await pool.connect();
          try {
            await client.query("begin");
            if (target === "fenced") await fencePostgres(client, { fence }, { resource });
            await client.query(upsert, [target, value]);
            await client.query("commit");
          } catch (error) {
            await client.query("rollback");
            throw error;
          } finally {
            client.release();
          }
        },
        read: async (target) =>
          (await pool.query("select value from register where name = $1", [target])).rows[0]?.value,
        end: () => pool.end(),
      };
    },
  },
  mariadb: {
    canRun: canRunMariadb,
    start: startMariadb,
    async open(url) {
      const pool = createPool(url);
      return {
        store: mysqlStore(pool, { durability: "ephemeral", autoMigrate: true }),
        async prepare() {
          await pool.query("create table register (name varchar(20) primary key, value text)");
          await migrateMysqlFence(pool);
        },
        async write(target, value, fence) {
          const connection = await pool.getConnection();
          try {
            await connection.beginTransaction();
            if (target === "fenced") await fenceMysql(connection, { fence }, { resource });
            await connection.query("replace into register values (?, ?)", [target, value]);
            await connection.commit();
          } catch (error) {
            await connection.rollback();
            throw error;
          } finally {
            connection.release();
          }
        },
        async read(target) {
          const [rows] = await pool.query("select value from register where name = ?", [target]);
          return (rows as { value: string }[])[0]?.value;
        },
        end: () => pool.end(),
      };
    },
  },
  redis: {
    canRun: canRunRedis,
    async start() {
      const server = await startRedis();
      return { url: `redis://127.0.0.1:${server.port}`, stop: () => server.stop() };
    },
    async open(url) {
      const client = new Redis(url);
      return {
        store: redisStore(client),
        prepare: async () => {},
        write: (target, value, fence) =>
          target === "fenced" ? fencedSet(client, target, value, { fence }) : client.set(target, value),
        read: (target) => client.get(target),
        end: async () => client.disconnect(),
      };
    },
  },
  mongodb: {
    canRun: canRunMongodb,
    start: startMongodb,
    async open(url) {
      const client = new MongoClient(url);
      const register = client.db("register").collection<{ _id: string; value: string }>("register");
      return {
        store: mongodbStore(client.db("register")),
        prepare: async () => {},
        write(target, value, fence) {
          const [filter, update] = [{ _id: target }, { $set: { value } }];
          return target === "fenced"
            ? fencedUpdateOne(register, filter, update, { fence }, { upsert: true })
            : register.updateOne(filter, update, { upsert: true });
        },
        read: async (target) => (await register.findOne({ _id: target }))?.value,
        end: () => client.close(),
      };
    },
  },
};
