/** The options of `mongodbStore`. */
import { checkBoolean, checkChoice, checkOptionNames } from "../../store/index.ts";
import { type CasStoreOptions, casOptionNames } from "../cas/index.ts";

/** Options of `mongodbStore`. */
export interface MongodbStoreOptions extends CasStoreOptions {
  /**
   * The collection for the records, if a database is passed. It should hold nothing else. 1 to 120 letters, digits, "_", "-" and
   * ".", beginning with a letter or "_". Default "holdfast".
   */
  readonly collection?: string;
  /** Whether to create the index that finds old records. Default true. */
  readonly createIndex?: boolean;
  /**
   * `"quorum"` demands a replica set, which is checked at first use. Default `"local"`. In both cases a majority has each confirmed write
   * on its disks.
   */
  readonly durability?: "local" | "quorum";
}

export interface ResolvedOptions {
  readonly collection: string | undefined;
  readonly createIndex: boolean;
  readonly durability: "local" | "quorum";
  readonly shared: CasStoreOptions;
}

export function resolveOptions(options: MongodbStoreOptions): ResolvedOptions {
  checkOptionNames("mongodbStore", options, {
    ...casOptionNames,
    collection: true,
    createIndex: true,
    durability: true,
  });
  const { collection, createIndex = true, durability = "local", ...shared } = options;
  return {
    collection,
    createIndex: checkBoolean("createIndex", createIndex),
    durability: checkChoice("durability", durability, ["local", "quorum"]),
    shared,
  };
}
