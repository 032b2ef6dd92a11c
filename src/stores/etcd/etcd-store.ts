import { type Clock, checkInteger, invalid, type Store, systemClock } from "../../core/index.ts";
import { casStore } from "../cas/index.ts";
import { checkClient, type EtcdClient } from "./client.ts";
import { EtcdDriver } from "./driver.ts";

export interface EtcdStoreOptions {
  /** What all keys begin with, before a slash. 1 to 128 characters, no control characters. Default "holdfast". */
  readonly prefix?: string;
  /** How many claims may wait for one key before `QUEUE_FULL`. 0 to 100,000. Default 1,000. */
  readonly maxWaiters?: number;
  /** What the servers were started with as `--max-txn-ops`, or less. 64 to 10,000. Default 128, as etcd's. */
  readonly maxTxnOps?: number;
  /** How many requests may be under way at once. 1 to 64. Default 4. */
  readonly maxFlights?: number;
  /** How long an answer is waited for, in milliseconds. 100 to 600,000. Default 5,000. */
  readonly flightMs?: number;
  /** For how long a call is tried again while other processes keep changing the same key, in milliseconds. Default 10,000. */
  readonly giveUpMs?: number;
  /** For how long, at least, a record is kept after its last claim, in milliseconds. Default 300,000. */
  readonly keepIdleMs?: number;
  /** By how much, as a fraction, the rates of this machine's clock and the servers' may differ. 0 to 0.1. Default 0.001. */
  readonly clockDrift?: number;
  /** Where time comes from. Default: this machine. */
  readonly clock?: Clock;
}

const names: ReadonlySet<string> = new Set<keyof EtcdStoreOptions>([
  "prefix",
  "maxWaiters",
  "maxTxnOps",
  "maxFlights",
  "flightMs",
  "giveUpMs",
  "keepIdleMs",
  "clockDrift",
  "clock",
]);

/**
 * Keeps locks in etcd 3.4 or newer, through a client of the etcd3 package. The client stays the caller's: close the store
 * first, then the client.
 *
 * @example
 * const locks = createLocks(etcdStore(new Etcd3({ hosts: ["http://one:2379", "http://two:2379", "http://three:2379"] })));
 */
export function etcdStore(client: EtcdClient, options: EtcdStoreOptions = {}): Store {
  checkClient(client);
  const unknown = Object.keys(options).find((name) => !names.has(name));
  if (unknown !== undefined) throw invalid(`${unknown} is no option of the etcd store.`);
  const { clock = systemClock, clockDrift = 0.001 } = options;
  const flightMs = checkInteger("flightMs", options.flightMs ?? 5_000, 100, 600_000);
  const keepIdleMs = checkInteger("keepIdleMs", options.keepIdleMs ?? 300_000, flightMs + 1, 86_400_000);
  const driver = new EtcdDriver({
    client,
    prefix: checkPrefix(options.prefix ?? "holdfast"),
    maxTxnOps: checkInteger("maxTxnOps", options.maxTxnOps ?? 128, 64, 10_000),
    flightMs,
    keepIdleMs,
    clockDrift,
    clock,
  });
  return casStore(driver, {
    maxWaiters: checkInteger("maxWaiters", options.maxWaiters ?? 1_000, 0, 100_000),
    maxFlights: checkInteger("maxFlights", options.maxFlights ?? 4, 1, 64),
    giveUpMs: checkInteger("giveUpMs", options.giveUpMs ?? 10_000, 1, 600_000),
    flightMs,
    keepIdleMs,
    clockDrift,
    clock,
  });
}

function checkPrefix(prefix: unknown): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is refused.
  if (typeof prefix === "string" && /^[^\u0000-\u001f\u007f]{1,128}$/u.test(prefix)) return prefix;
  throw invalid(
    `prefix must be a text of 1 to 128 characters without control characters, not ${JSON.stringify(prefix)}.`,
  );
}
