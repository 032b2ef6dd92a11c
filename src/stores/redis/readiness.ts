/** The check before the first use of a store: one round trip that finds wrong clients, servers and options. */
import { HoldfastError, invalid } from "../../store/index.ts";
import type { Connection } from "./client.ts";
import { mapError, replyCode } from "./errors.ts";
import { nextCall, replyTo } from "./script-call.ts";

/**
 * KEYS[1]: the number of partitions that all clients agree on. ARGV: that of this store, the number of the call, and the database to
 * select or an empty text.
 *
 * Replies the number of the call, the number of partitions, INFO or an empty text if the user may not ask, and "1" if the
 * database was selected. A user who may not select a database cannot leave one.
 */
const READINESS_SCRIPT = `
local selected = ARGV[3] ~= '' and redis.pcall('SELECT', ARGV[3])
local partitions = redis.call('GET', KEYS[1])
if not partitions then
  redis.call('SET', KEYS[1], ARGV[1])
  partitions = ARGV[1]
end
local info = redis.pcall('INFO', 'server')
return { ARGV[2], partitions, type(info) == 'string' and info or '', selected and not selected.err and '1' or '' }
`;

/** A client may lose a command with its connection, and then never settles it. Later calls then repeat the check. */
const PATIENCE_MS = 1_000;

export class Readiness {
  readonly #connection: Connection;
  readonly #keyPrefix: string;
  readonly #partitions: number;
  #checking: Promise<void> | undefined;
  #sinceMs = 0;
  #done = false;

  constructor(connection: Connection, keyPrefix: string, partitions: number) {
    this.#connection = connection;
    this.#keyPrefix = keyPrefix;
    this.#partitions = partitions;
  }

  get done(): boolean {
    return this.#done;
  }

  /** Resolves once the check has passed. After a failure the next call checks again. */
  check(): Promise<void> {
    const nowMs = performance.now();
    if (this.#checking !== undefined && nowMs - this.#sinceMs < PATIENCE_MS) return this.#checking;
    const checking = this.#check().finally(() => {
      if (this.#checking === checking) this.#checking = undefined;
    });
    this.#checking = checking;
    this.#sinceMs = nowMs;
    return checking;
  }

  async #check(): Promise<void> {
    // Every number of partitions has the first one.
    const key = `${this.#keyPrefix}:{0}:partitions`;
    const [, partitions, info, selected] = await this.#ask(key);
    checkVersion(String(info));
    this.#checkPartitions(key, String(partitions));
    this.#connection.selects = String(selected) === "1";
    this.#done = true;
  }

  async #ask(key: string): Promise<readonly unknown[]> {
    const number = nextCall();
    const database = String(this.#connection.database ?? "");
    const args = [READINESS_SCRIPT, "1", key, String(this.#partitions), number, database];
    try {
      return replyTo(number, await this.#connection.send(key, "EVAL", args), this.#connection, key);
    } catch (error) {
      if (replyCode(error) !== "MOVED" || this.#connection.cluster) throw mapError(error);
      throw invalid(
        "client must be a cluster client, because its server is part of a cluster. Use Cluster of ioredis or createCluster of node-redis.",
      );
    }
  }

  #checkPartitions(key: string, found: string): void {
    if (found === String(this.#partitions)) return;
    const prefix = this.#keyPrefix;
    if (!/^\d{1,4}$/.test(found)) {
      throw new HoldfastError(
        "STORE_FAILURE",
        `Another program wrote the key "${key}". Choose another keyPrefix than "${prefix}".`,
      );
    }
    throw invalid(
      `partitions must be the same for all clients of keyPrefix "${prefix}". It is ${this.#partitions} here and ${found} elsewhere. Use ${found}, or another keyPrefix. To change it for all clients, stop them and delete "${key}".`,
    );
  }
}

/** Valkey begins with 7.2 and reports the version of Redis that it is compatible with, so one comparison serves both. */
export function checkVersion(info: string): void {
  const [, text = "", major, minor] = /^redis_version:((\d+)\.(\d+)[^\s]*)/m.exec(info) ?? [];
  if (major === undefined || Number(major) > 6 || (Number(major) === 6 && Number(minor) >= 2)) return;
  throw new HoldfastError(
    "UNSUPPORTED",
    `Redis ${text} is too old. Upgrade the server to Redis 6.2 or newer, or Valkey 7.2 or newer.`,
  );
}
