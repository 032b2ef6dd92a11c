import { checkBoolean, checkChoice, checkOptionNames, type Store } from "../../store/index.ts";
import { type CasStoreOptions, casDefaults, casOptionNames, casStore } from "../cas/index.ts";
import { type MongodbCollection, type MongodbDatabase, recordsIn } from "./database.ts";
import { MongodbDriver } from "./mongodb-driver.ts";

/** Options of `mongodbStore`. */
export interface MongodbStoreOptions extends CasStoreOptions {
  /**
   * The collection for the records, where a database is passed. It should hold nothing else. 1 to 120 letters, digits, "_", "-" and
   * ".", beginning with a letter or "_". Default "holdfast".
   */
  readonly collection?: string;
  /** Whether to create the index by which old records are found. Default true. */
  readonly createIndex?: boolean;
  /**
   * What to count on: `"quorum"` demands a replica set, and is refused at first use where there is none. Default `"local"`.
   * Writes are confirmed by a majority, and on its disks, in either case.
   */
  readonly durability?: "local" | "quorum";
}

/**
 * A store in MongoDB 4.2 or newer: a replica set, or a single server, through the `Db` or the `Collection` that you have.
 *
 * @example
 * const locks = createLocks(mongodbStore(client.db("app")));
 */
export function mongodbStore(
  target: MongodbDatabase | MongodbCollection,
  options: MongodbStoreOptions = {},
): Store {
  checkOptionNames("mongodbStore", options, {
    ...casOptionNames,
    collection: true,
    createIndex: true,
    durability: true,
  });
  const { collection, createIndex = true, durability = "local", ...settings } = options;
  const timeoutMs = settings.requestTimeoutMs ?? casDefaults.requestTimeoutMs;
  const driver = new MongodbDriver(recordsIn(target, collection, timeoutMs), {
    createIndex: checkBoolean("createIndex", createIndex),
    durability: checkChoice("durability", durability, ["local", "quorum"]),
    timeoutMs,
  });
  return casStore(driver, settings);
}
