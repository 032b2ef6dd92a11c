/** What is checked before a store is used: once, in one round trip, so that a mistake is told instead of met later. */
import { HoldfastError, invalid } from "../../store/index.ts";
import type { Connection } from "./connection.ts";
import { mapError, replyCode } from "./errors.ts";
import { nextCall, replyTo } from "./numbered-call.ts";

/**
 * KEYS[1]: where the number of partitions is written down. ARGV[1]: that of this store. ARGV[2]: the number of the call. ARGV[3]: the
 * database to select, or nothing.
 *
 * Replies the number of the call, the number that is written there, which is this store's when there was none, what the server tells of
 * itself, or nothing where the user may not ask, and "1" if the database was selected. A user who may not select a database cannot leave one.
 */
const HELLO_SCRIPT = `
local selected = ARGV[3] ~= '' and redis.pcall('SELECT', ARGV[3])
local partitions = redis.call('GET', KEYS[1])
if not partitions then
  redis.call('SET', KEYS[1], ARGV[1])
  partitions = ARGV[1]
end
local info = redis.pcall('INFO', 'server')
return { ARGV[2], partitions, type(info) == 'string' and info or '', selected and not selected.err and '1' or '' }
`;

/**
 * How long calls wait for the question of an earlier one. A client may lose a command together with its connection, and then
 * neither answers it nor fails it: if all waited for that one, the store would never be of use again.
 */
const PATIENCE_MS = 1_000;

export class Hello {
  readonly #connection: Connection;
  readonly #keyPrefix: string;
  readonly #partitions: number;
  #saying: Promise<void> | undefined;
  #askedMs = 0;
  #done = false;

  constructor(connection: Connection, keyPrefix: string, partitions: number) {
    this.#connection = connection;
    this.#keyPrefix = keyPrefix;
    this.#partitions = partitions;
  }

  get done(): boolean {
    return this.#done;
  }

  /** Resolves when all is well. What failed is tried again by the next call. */
  say(): Promise<void> {
    const nowMs = performance.now();
    if (this.#saying !== undefined && nowMs - this.#askedMs < PATIENCE_MS) return this.#saying;
    const saying = this.#say().finally(() => {
      if (this.#saying === saying) this.#saying = undefined;
    });
    this.#saying = saying;
    this.#askedMs = nowMs;
    return saying;
  }

  async #say(): Promise<void> {
    // The first partition is the one that every number of partitions has.
    const key = `${this.#keyPrefix}:{0}:partitions`;
    const [, partitions, info, selected] = await this.#ask(key);
    checkVersion(String(info));
    this.#checkPartitions(key, String(partitions));
    this.#connection.selects = String(selected) === "1";
    this.#done = true;
  }

  async #ask(key: string): Promise<readonly unknown[]> {
    const number = nextCall();
    try {
      const database = String(this.#connection.database ?? "");
      const args = [HELLO_SCRIPT, "1", key, String(this.#partitions), number, database];
      return replyTo(number, await this.#connection.send(key, "EVAL", args), this.#connection, key);
    } catch (error) {
      if (replyCode(error) === "MOVED" && !this.#connection.cluster) {
        throw invalid(
          "client must be a cluster client, because its server is part of a cluster. Use Cluster of ioredis or createCluster of node-redis.",
        );
      }
      throw mapError(error);
    }
  }

  #checkPartitions(key: string, found: string): void {
    if (found === String(this.#partitions)) return;
    if (!/^\d{1,4}$/.test(found)) {
      throw new HoldfastError(
        "STORE_FAILURE",
        `Another program wrote the key "${key}". Choose another keyPrefix than "${this.#keyPrefix}".`,
      );
    }
    throw invalid(
      `partitions must be the same for all clients of keyPrefix "${this.#keyPrefix}". It is ${this.#partitions} here and ${found} elsewhere. Use ${found}, or another keyPrefix. To change it for all clients, stop them and delete "${key}".`,
    );
  }
}

const OLDEST = [6, 2] as const;

/** Valkey began with 7.2 and tells the version of Redis that it can stand for; so one comparison serves both. */
export function checkVersion(info: string): void {
  const [, text = "", major, minor] = /^redis_version:((\d+)\.(\d+)[^\s]*)/m.exec(info) ?? [];
  if (major === undefined || Number(major) > OLDEST[0]) return;
  if (Number(major) === OLDEST[0] && Number(minor) >= OLDEST[1]) return;
  throw new HoldfastError(
    "UNSUPPORTED",
    `Redis ${text} is too old. Upgrade the server to Redis 6.2 or newer, or Valkey 7.2 or newer.`,
  );
}
