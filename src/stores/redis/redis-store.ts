import {
  type AcquireAnswer,
  type AgreedGrant,
  type ClaimRef,
  type ClaimRequest,
  checkQuery,
  checkRenewRef,
  checkRequest,
  closedStore,
  commonFailure,
  type GrantListener,
  type KeyStatus,
  type LookPage,
  type LookQuery,
  type QuorumMember,
  type RenewAnswer,
  type RenewRef,
  UNLIMITED,
  type Unsubscribe,
} from "../../store/index.ts";
import { Batch, type Verb } from "./batch.ts";
import { type Connection, connectionOver, type RedisClient } from "./client.ts";
import { checkOptions, type RedisStoreOptions } from "./options.ts";
import { Readiness } from "./readiness.ts";
import { type Reply, readAcquire, readKeyStatus, readRenew, readYes } from "./reply.ts";
import { readCursor, scanPage } from "./scan.ts";
import { Wake } from "./wake.ts";

/**
 * A store in Redis 6.2 or newer (or Valkey): standalone, Sentinel or Cluster, through the client that you have.
 *
 * @example
 * const locks = createLocks(redisStore(new Redis()));
 */
export function redisStore(client: RedisClient, options: RedisStoreOptions = {}): QuorumMember {
  const connection = connectionOver(client);
  return new RedisStore(connection, checkOptions(options, connection.cluster));
}

class RedisStore implements QuorumMember {
  readonly name = "redis";
  readonly durability = "ephemeral";
  readonly counts = true;
  readonly #connection: Connection;
  readonly #batches: readonly Batch[];
  readonly #wake: Wake;
  readonly #readiness: Readiness;
  #closed = false;

  constructor(connection: Connection, { keyPrefix, partitions, maxWaiters }: Required<RedisStoreOptions>) {
    const channelPrefix = `${keyPrefix}:wake:`;
    this.#connection = connection;
    this.#wake = new Wake(connection, channelPrefix);
    this.#readiness = new Readiness(connection, keyPrefix, partitions);
    this.#batches = Array.from(
      { length: partitions },
      (_, tag) =>
        new Batch({
          connection,
          partition: `${keyPrefix}:{${tag}}`,
          settings: () => `[${maxWaiters},${JSON.stringify(channelPrefix)},${this.#wake.ownersText}]`,
          onGranted: (owner, ref) => this.#wake.tell(owner, ref),
        }),
    );
  }

  async acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    checkRequest(request);
    const { ttlMs, weight, limit, priority, owner, info, application } = request;
    const common = [ttlMs, weight, limit === UNLIMITED ? 0 : limit, priority, owner];
    const terms = JSON.stringify(info === "" && application === "" ? common : [...common, info, application]);
    // A grant that is published before its owner listens would be noticed only at a heartbeat.
    const ready = request.wait ? this.#wake.ready(request) : undefined;
    if (ready !== undefined) await ready;
    return this.#ask(request.wait ? "acquire" : "try", request, terms, readAcquire);
  }

  async renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    for (const ref of refs) checkRenewRef(ref);
    const settled = await Promise.allSettled(
      refs.map((ref) => this.#ask("renew", ref, ref.ttlMs?.toString(), readRenew)),
    );
    const failure = commonFailure(settled);
    if (failure !== undefined) throw failure;
    // A damaged lock, or a server of a cluster that is down, must not cost the other leases.
    return settled.map((each) =>
      each.status === "rejected" ? { state: "failed", error: each.reason } : each.value,
    );
  }

  async release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    for (const ref of refs) checkRenewRef(ref);
    return Promise.all(refs.map((ref) => this.#release(ref)));
  }

  async confirm(ref: ClaimRef, own: bigint, agreed: AgreedGrant): Promise<boolean> {
    checkRenewRef(ref);
    this.#batchOf(ref.key).saw(agreed.fence);
    const terms = `[${own},${agreed.fence},${agreed.acquiredAtMs},${JSON.stringify(agreed.by ?? "")}]`;
    return this.#ask("confirm", ref, terms, readYes);
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    if (!("prefix" in query)) return { keys: [await this.#lookAt(query.key, query.maxClaims)] };
    const place = readCursor(query.cursor, this.#batches.length);
    const { locks } = this.#batches[place.partition] as Batch;
    const page = await scanPage(this.#connection, locks, query, place, this.#batches.length);
    const statuses = await Promise.all(page.keys.map((key) => this.#lookAt(key, query.maxClaims)));
    const keys = statuses.filter((status) => status.heldCount + status.waitingCount > 0);
    return page.cursor === undefined ? { keys } : { keys, cursor: page.cursor };
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    return this.#wake.listen(owner, listener);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#wake.close();
  }

  async #release(ref: ClaimRef): Promise<boolean> {
    const acquired = this.#wake.afterAcquire(ref);
    if (acquired !== undefined) await acquired;
    return this.#ask("release", ref, undefined, readYes);
  }

  #lookAt(key: string, maxClaims: number): Promise<KeyStatus> {
    const read = (reply: Reply) => readKeyStatus(key, reply);
    return this.#ask("look", { key, id: "", token: "" }, String(maxClaims), read);
  }

  async #ask<T>(verb: Verb, ref: ClaimRef, terms: string | undefined, read: (reply: Reply) => T): Promise<T> {
    if (this.#closed) throw closedStore("Redis", ref.key);
    if (!this.#readiness.done) await this.#readiness.check();
    return this.#batchOf(ref.key).ask(verb, ref, terms, read);
  }

  #batchOf(key: string): Batch {
    let hash = 0x811c9dc5;
    for (let index = 0; index < key.length; index++)
      hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
    return this.#batches[(hash >>> 0) % this.#batches.length] as Batch;
  }
}
