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
  readonly #terms = new Terms();
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

  acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    return attempt(() => {
      const terms = this.#terms.textOf(request);
      const ask = () => this.#ask(request.wait ? "acquire" : "try", request, terms, readAcquire);
      // A grant that is published before its owner listens would be noticed only at a heartbeat.
      return request.wait ? after(this.#wake.ready(request), ask) : ask();
    });
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

  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    return attempt(() => {
      for (const ref of refs) checkRenewRef(ref);
      return Promise.all(
        refs.map((ref) =>
          after(this.#wake.afterAcquire(ref), () => this.#ask("release", ref, undefined, readYes)),
        ),
      );
    });
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

  #lookAt(key: string, maxClaims: number): Promise<KeyStatus> {
    const read = (reply: Reply) => readKeyStatus(key, reply);
    return this.#ask("look", { key, id: "", token: "" }, String(maxClaims), read);
  }

  #ask<T>(verb: Verb, ref: ClaimRef, terms: string | undefined, read: (reply: Reply) => T): Promise<T> {
    if (this.#closed) throw closedStore("Redis", ref.key);
    const batch = this.#batchOf(ref.key);
    const ready = this.#readiness.done ? undefined : this.#readiness.check();
    return after(ready, () => batch.ask(verb, ref, terms, read));
  }

  #batchOf(key: string): Batch {
    let hash = 0x811c9dc5;
    for (let index = 0; index < key.length; index++)
      hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
    return this.#batches[(hash >>> 0) % this.#batches.length] as Batch;
  }
}

/** The terms of an acquire as JSON. Most acquires have the terms of the one before, so that one is cached. */
class Terms {
  #last: ClaimRequest | undefined;
  #text = "";

  /** Checks the request. */
  textOf(request: ClaimRequest): string {
    const { ttlMs, weight, limit, priority, owner, info, application } = request;
    const last = this.#last;
    const isSame =
      ttlMs === last?.ttlMs && weight === last.weight && limit === last.limit && priority === last.priority;
    if (isSame && owner === last.owner && info === last.info && application === last.application) {
      checkRenewRef(request);
      return this.#text;
    }
    checkRequest(request);
    const common = [ttlMs, weight, limit === UNLIMITED ? 0 : limit, priority, owner];
    this.#text = JSON.stringify(info === "" && application === "" ? common : [...common, info, application]);
    this.#last = { ...request };
    return this.#text;
  }
}

// An acquire and a release are no async functions: each promise less is 3 % of a cycle with 100 callers.

/** Returns what `call` returns, and rejects if it throws. */
function attempt<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call();
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Calls at once if there is nothing to wait for. */
function after<T>(ready: Promise<void> | undefined, call: () => Promise<T>): Promise<T> {
  return ready === undefined ? call() : ready.then(call);
}
