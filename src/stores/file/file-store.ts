import { checkOptionNames, invalid, type Store } from "../../store/index.ts";
import { casStore } from "../cas/index.ts";
import { fileDriver } from "./driver.ts";

/** Options of `fileStore`. */
export interface FileStoreOptions {
  /** The number of claims that may wait for one key before `QUEUE_FULL`. 0 to 1,000,000. Default 1,000. */
  readonly maxWaiters?: number;
  /**
   * The time to wait for the disk before a call is `STORE_UNAVAILABLE`, in milliseconds. 10 to 600,000. Default 5,000.
   */
  readonly requestTimeoutMs?: number;
  /** The time to keep a record after its last claim, in milliseconds. More than `requestTimeoutMs`, up to a day. Default 300,000. */
  readonly keepIdleMs?: number;
}

/**
 * A store in a folder, for all processes of this machine. Every confirmed change is on the disk. It needs the package `lmdb`. The first
 * call makes the folder, and fails if the folder cannot be used.
 *
 * @example
 * const locks = createLocks(fileStore("./locks"));
 */
export function fileStore(folder: string, options: FileStoreOptions = {}): Store {
  if (typeof folder !== "string" || folder === "" || folder.includes("\0")) {
    throw invalid('folder must be the path of a folder, such as "./locks".');
  }
  checkOptionNames("fileStore", options, { maxWaiters: true, requestTimeoutMs: true, keepIdleMs: true });
  // The store and its callers are on one machine, and so on one clock.
  return casStore(fileDriver(folder), { ...options, clockDrift: 0 });
}
