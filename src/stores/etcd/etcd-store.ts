import { systemClock } from "../../platform/index.ts";
import { checkInteger, checkOptionNames, invalid, type Store } from "../../store/index.ts";
import { type CasStoreOptions, casDefaults, casStore } from "../cas/index.ts";
import { checkClient, type EtcdClient } from "./client.ts";
import { EtcdDriver } from "./driver.ts";

/** Options of `etcdStore`. */
export interface EtcdStoreOptions
  extends Pick<CasStoreOptions, "maxConcurrentRequests" | "giveUpMs" | "clockDrift" | "clock" | "random"> {
  /** What all keys begin with, before a slash. 1 to 128 characters, no control characters. Default "holdfast". */
  readonly prefix?: string;
  /** How many claims may wait for one key before `QUEUE_FULL`. 0 to 100,000. Default 1,000. */
  readonly maxWaiters?: number;
  /** What the servers were started with as `--max-txn-ops`, or less. 64 to 10,000. Default 128, as etcd's. */
  readonly maxTxnOps?: number;
  /** How long an answer is waited for, in milliseconds. 100 to 600,000. Default 5,000. */
  readonly requestTimeoutMs?: number;
  /** For how long, at least, a record is kept after its last claim, in milliseconds. Default 300,000. */
  readonly keepIdleMs?: number;
}

/**
 * Keeps locks in etcd 3.4 or newer, through a client of the etcd3 package. The client stays the caller's: close the store
 * first, then the client.
 *
 * @example
 * const locks = createLocks(etcdStore(new Etcd3({ hosts: ["http://one:2379", "http://two:2379", "http://three:2379"] })));
 */
export function etcdStore(client: EtcdClient, options: EtcdStoreOptions = {}): Store {
  checkClient(client);
  checkOptionNames("etcdStore", options, {
    prefix: true,
    maxWaiters: true,
    maxTxnOps: true,
    maxConcurrentRequests: true,
    requestTimeoutMs: true,
    giveUpMs: true,
    keepIdleMs: true,
    clockDrift: true,
    clock: true,
    random: true,
  });
  const { prefix = "holdfast", maxTxnOps = 128, ...shared } = options;
  const { clock = systemClock, random = Math.random, clockDrift = casDefaults.clockDrift } = shared;
  const { requestTimeoutMs = casDefaults.requestTimeoutMs, keepIdleMs = casDefaults.keepIdleMs } = shared;
  if (shared.maxWaiters !== undefined) checkInteger("maxWaiters", shared.maxWaiters, 0, 100_000);
  checkInteger("requestTimeoutMs", requestTimeoutMs, 100, 600_000);
  checkInteger("keepIdleMs", keepIdleMs, requestTimeoutMs + 1, 86_400_000);
  const driver = new EtcdDriver({
    client,
    prefix: checkPrefix(prefix),
    maxTxnOps: checkInteger("maxTxnOps", maxTxnOps, 64, 10_000),
    requestTimeoutMs,
    keepIdleMs,
    clockDrift,
    clock,
    random,
  });
  return casStore(driver, shared);
}

function checkPrefix(prefix: unknown): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is refused.
  if (typeof prefix === "string" && /^[^\u0000-\u001f\u007f]{1,128}$/u.test(prefix)) return prefix;
  throw invalid(
    `prefix must be a text of 1 to 128 characters without control characters, not ${JSON.stringify(prefix)}.`,
  );
}
