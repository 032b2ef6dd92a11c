import { checkOptionNames, invalid, type Store } from "../../store/index.ts";
import { casStore } from "../cas/index.ts";
import { fileDriver } from "./driver.ts";

/** Options of `fileStore`. */
export interface FileStoreOptions {
  /** How many claims may wait for one key before `QUEUE_FULL`. 0 to 1,000,000. Default 1,000. */
  readonly maxWaiters?: number;
  /**
   * How long the disk is waited for before a call is `STORE_UNAVAILABLE`, in milliseconds. 10 to 600,000. Default 5,000.
   */
  readonly flightMs?: number;
  /** For how long a record is kept after its last claim, in milliseconds. More than `flightMs`, up to a day. Default 300,000. */
  readonly keepIdleMs?: number;
}

/**
 * A store in a folder, for all processes of this machine. What it has confirmed is on the disk. It needs the package
 * `lmdb`, and makes the folder with the first call; that call fails where the folder will not do, and says why.
 *
 * @example
 * const locks = createLocks(fileStore("./locks"));
 */
export function fileStore(folder: string, options: FileStoreOptions = {}): Store {
  if (typeof folder !== "string" || folder === "" || folder.includes("\0")) {
    throw invalid('folder must be the path of a folder, such as "./locks".');
  }
  checkOptionNames("fileStore", options, { maxWaiters: true, flightMs: true, keepIdleMs: true });
  // The store and its callers are on one machine, and so on one clock.
  return casStore(fileDriver(folder), { ...options, clockDrift: 0 });
}
