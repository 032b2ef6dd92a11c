import type { Store } from "../../store/index.ts";
import { casDefaults, casStore } from "../cas/index.ts";
import { type MongodbCollection, type MongodbDatabase, recordsIn } from "./client.ts";
import { MongodbDriver } from "./driver.ts";
import { type MongodbStoreOptions, resolveOptions } from "./options.ts";

/**
 * A store in MongoDB 4.2 or newer, a replica set or a single server, through the application's `Db` or `Collection`.
 *
 * @example
 * const locks = createLocks(mongodbStore(client.db("app")));
 */
export function mongodbStore(
  target: MongodbDatabase | MongodbCollection,
  options: MongodbStoreOptions = {},
): Store {
  const { collection, shared, ...settings } = resolveOptions(options);
  const timeoutMs = shared.requestTimeoutMs ?? casDefaults.requestTimeoutMs;
  const records = recordsIn(target, collection, timeoutMs);
  return casStore(new MongodbDriver(records, { ...settings, timeoutMs }), shared);
}
