/** An option that a store does not have is refused: a misspelt one would be passed over, and its default hold instead. */
import { Etcd3 } from "etcd3";
import { memoryStore } from "holdfast";
import { casStore } from "holdfast/cas";
import { etcdStore } from "holdfast/etcd";
import { fileStore } from "holdfast/file";
import { mongodbStore } from "holdfast/mongodb";
import { mysqlStore } from "holdfast/mysql";
import { postgresStore } from "holdfast/postgres";
import { redisStore } from "holdfast/redis";
import { quorumStore, redlockStore } from "holdfast/redlock";
import { remoteStore } from "holdfast/remote";
import { Redis } from "ioredis";
import { MongoClient } from "mongodb";
import { createPool } from "mysql2/promise";
import { Pool } from "pg";
import { expect, test } from "vitest";
import { MapDatabase, mapDriver } from "../../examples/driver/map-driver.ts";

const redis = () => new Redis({ lazyConnect: true });

/** Each with an option that it has. None of them connects before its first use. */
test.each([
  ["casStore", "random", (options: object) => casStore(mapDriver(new MapDatabase()), options)],
  ["etcdStore", "maxTxnOps", (options: object) => etcdStore(new Etcd3(), options)],
  ["fileStore", "keepIdleMs", (options: object) => fileStore("./locks", options)],
  ["memoryStore", "clock", (options: object) => memoryStore(options)],
  [
    "mongodbStore",
    "createIndex",
    (options: object) => mongodbStore(new MongoClient("mongodb://localhost").db(), options),
  ],
  ["mysqlStore", "maxRecordBytes", (options: object) => mysqlStore(createPool({}), options)],
  ["postgresStore", "listener", (options: object) => postgresStore(new Pool(), options)],
  ["quorumStore", "name", (options: object) => quorumStore([memoryStore()], options)],
  ["redisStore", "partitions", (options: object) => redisStore(redis(), options)],
  ["redlockStore", "backoffMs", (options: object) => redlockStore([redis()], options)],
  ["remoteStore", "silenceMs", (options: object) => remoteStore("http://localhost:7420", options)],
])(
  "%s refuses an option that it does not have, names those that it has, and shows no value",
  (name, option, create) => {
    const refusal = (options: object) => {
      try {
        create(options);
      } catch (error) {
        return error;
      }
      return undefined;
    };
    expect(refusal({ maxWaitres: "secret" })).toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(
        new RegExp(
          `^maxWaitres is not an option of ${name}\\. Remove it, or write one of .*\\b${option}\\b.*\\.$`,
        ),
      ),
    });
    expect(refusal({ maxWaitres: "secret" })).not.toMatchObject({
      message: expect.stringContaining("secret"),
    });
    // What every object has is no option either.
    expect(refusal({ toString: 1 })).toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(refusal({ [option]: undefined })).toBeUndefined();
  },
);

test.each([null, "locks", 7])("options that are %j are refused", (options) => {
  expect(() => memoryStore(options as never)).toThrow(
    expect.objectContaining({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(
        /^The options of memoryStore must be an object with maxWaiters, clock, not/,
      ),
    }),
  );
});

test.each([undefined, null, {}, { read() {}, swap() {} }])(
  "casStore refuses %j, which is no driver",
  (driver) => {
    expect(() => casStore(driver as never)).toThrow(
      expect.objectContaining({
        code: "INVALID_ARGUMENT",
        message: expect.stringContaining("driver must have read, swap and list"),
      }),
    );
  },
);
