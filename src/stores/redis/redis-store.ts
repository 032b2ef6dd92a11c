import { StayAwake } from "../../platform/index.ts";
import {
  type AcquireAnswer,
  type AgreedGrant,
  bounds,
  type ClaimRef,
  type ClaimRequest,
  type ClaimStatus,
  checkInteger,
  checkOptionNames,
  checkQuery,
  checkRenewRef,
  checkRequest,
  closedStore,
  commonFailure,
  type GrantListener,
  invalid,
  type KeyStatus,
  type LookPage,
  type LookQuery,
  type QuorumMember,
  type RefusalReason,
  type RenewAnswer,
  type RenewRef,
  UNLIMITED,
  type Unsubscribe,
} from "../../store/index.ts";
import {
  ACQUIRE,
  Batch,
  LOOK,
  locksOf,
  NOT_RELEASED,
  Operation,
  RELEASE,
  RELEASED,
  RENEW,
  TRY,
} from "./batch.ts";
import { confirmGrant } from "./confirm-script.ts";
import { type Connection, connectionOver, type RedisClient } from "./connection.ts";
import { Hello } from "./hello.ts";
import { ALIKE, type Reply } from "./reply.ts";
import { scanKeys } from "./scan-script.ts";
import { WakeUps } from "./wake-ups.ts";

export interface RedisStoreOptions {
  /** What all keys of this store begin with. No braces. Default "holdfast". */
  readonly keyPrefix?: string;
  /** Over how many slots of a cluster the keys are spread. All clients must agree. 1 to 1,024. Default 1, in a cluster 16. */
  readonly partitions?: number;
  /** How many claims may wait for one key before `QUEUE_FULL`. Default 10,000. */
  readonly maxWaiters?: number;
}

/**
 * A store in Redis 6.2 or newer (or Valkey): standalone, Sentinel or Cluster, through the client that you have.
 *
 * @example
 * const locks = createLocks(redisStore(new Redis()));
 */
export function redisStore(client: RedisClient, options: RedisStoreOptions = {}): QuorumMember {
  checkOptionNames("redisStore", options, { keyPrefix: true, partitions: true, maxWaiters: true });
  return new RedisStore(connectionOver(client), options);
}

class RedisStore implements QuorumMember {
  readonly name = "redis";
  readonly durability = "ephemeral";
  readonly counts = true;
  readonly #connection: Connection;
  readonly #keyPrefix: string;
  readonly #batches: readonly Batch[];
  readonly #partitions: readonly string[];
  readonly #wakeUps: WakeUps;
  readonly #hello: Hello;
  readonly #terms = new Terms();
  /**
   * Requests that wait until their owner listens, by claim. What releases one must not overtake it: where a majority of
   * servers has answered, a claim may be over before it was asked for here, and would then stay.
   */
  readonly #heldBack = new Map<string, Promise<void>>();
  #closed = false;

  constructor(connection: Connection, options: RedisStoreOptions) {
    this.#connection = connection;
    this.#keyPrefix = checkKeyPrefix(options.keyPrefix ?? "holdfast");
    const count = checkInteger("partitions", options.partitions ?? (connection.cluster ? 16 : 1), 1, 1_024);
    const maxWaiters = checkInteger(
      "maxWaiters",
      options.maxWaiters ?? bounds.defaultMaxWaiters,
      0,
      1_000_000,
    );
    const channelPrefix = `${this.#keyPrefix}:wake:`;
    this.#wakeUps = new WakeUps(connection, channelPrefix);
    this.#hello = new Hello(connection, this.#keyPrefix, count);
    this.#partitions = Array.from({ length: count }, (_, tag) => `${this.#keyPrefix}:{${tag}}`);
    const awake = new StayAwake();
    this.#batches = this.#partitions.map(
      (partition) =>
        new Batch({
          connection,
          awake,
          partition,
          channelPrefix,
          maxWaiters,
          owners: () => this.#wakeUps.ownersText,
          onGranted: (owner, ref) => this.#wakeUps.tell(owner, ref),
        }),
    );
  }

  // Not an async function: each costs something, and this begins every lock cycle.
  acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    try {
      const terms = this.#terms.textOf(request);
      // A grant that is published before anybody listens would be noticed only at a heartbeat.
      const ready = request.wait ? this.#wakeUps.ready(request.owner) : undefined;
      return ready === undefined ? this.#acquire(request, terms) : this.#acquireWhen(ready, request, terms);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    for (const ref of refs) checkRenewRef(ref);
    const settled = await Promise.allSettled(
      refs.map((ref) => this.#ask(new Operation(RENEW, ref, ref.ttlMs?.toString(), renewAnswer))),
    );
    const failure = commonFailure(settled);
    // One lock that is damaged, or one server of a cluster that is down, must not cost the leases of all others.
    if (failure !== undefined) throw failure;
    return settled.map((each) =>
      each.status === "rejected" ? { state: "failed", error: each.reason } : each.value,
    );
  }

  // Like acquire: this ends every lock cycle.
  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    try {
      for (const ref of refs) checkRenewRef(ref);
      const [only] = refs;
      return refs.length === 1 && only !== undefined ? this.#release(only) : this.#releaseAll(refs);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async confirm(ref: ClaimRef, own: bigint, agreed: AgreedGrant): Promise<boolean> {
    checkRenewRef(ref);
    this.#checkOpen(ref.key);
    this.#batchOf(ref.key).saw(Number(agreed.fence));
    const partition = this.#partitions[this.#partitionOf(ref.key)] as string;
    return confirmGrant(this.#connection, partition, ref, own, agreed);
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    if ("prefix" in query) return this.#page(query);
    return { keys: [await this.#lookAt(query.key, query.maxClaims)] };
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    return this.#wakeUps.listen(owner, listener);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#wakeUps.close();
  }

  #acquire(request: ClaimRequest, terms: string): Promise<AcquireAnswer> {
    return this.#ask(new Operation(request.wait ? ACQUIRE : TRY, request, terms, acquireAnswer));
  }

  async #acquireWhen(ready: Promise<void>, request: ClaimRequest, terms: string): Promise<AcquireAnswer> {
    const claim = claimName(request);
    this.#heldBack.set(claim, ready);
    // What releases it waits for the same, and goes on after this.
    await ready;
    if (this.#heldBack.get(claim) === ready) this.#heldBack.delete(claim);
    return this.#acquire(request, terms);
  }

  /** Whether that one was. */
  #release(ref: ClaimRef): Promise<readonly boolean[]> {
    const heldBack = this.#heldBack.size > 0 ? this.#heldBack.get(claimName(ref)) : undefined;
    if (heldBack !== undefined) return this.#releaseWhen(heldBack, ref);
    return this.#ask(new Operation(RELEASE, ref, undefined, releaseAnswer));
  }

  async #releaseWhen(heldBack: Promise<void>, ref: ClaimRef): Promise<readonly boolean[]> {
    await heldBack;
    return this.#release(ref);
  }

  async #releaseAll(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    return (await Promise.all(refs.map((ref) => this.#release(ref)))).flat();
  }

  #ask<T>(operation: Operation<T>): Promise<T> {
    const { key } = operation;
    this.#checkOpen(key);
    const batch = this.#batchOf(key);
    return this.#hello.done ? batch.ask(operation) : this.#askAfterHello(batch, operation);
  }

  // Where a function is made in a method, what it refers to is allocated at each call, also where it is not made.

  async #askAfterHello<T>(batch: Batch, operation: Operation<T>): Promise<T> {
    await this.#hello.say();
    return batch.ask(operation);
  }

  #batchOf(key: string): Batch {
    return this.#batches[this.#partitionOf(key)] as Batch;
  }

  #checkOpen(key: string): void {
    if (this.#closed) throw closedStore("Redis", key);
  }

  #partitionOf(key: string): number {
    if (this.#partitions.length === 1) return 0;
    let hash = 0x811c9dc5;
    for (let index = 0; index < key.length; index++)
      hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
    return (hash >>> 0) % this.#partitions.length;
  }

  #lookAt(key: string, maxClaims: number): Promise<KeyStatus> {
    const nobody = { key, id: "", token: "" };
    return this.#ask(new Operation(LOOK, nobody, String(maxClaims), (reply) => keyStatus(key, reply)));
  }

  /** A cursor is the partition, where the server's scan of it stands, and the last key that was shown from there. */
  async #page(query: Extract<LookQuery, { prefix: string }>): Promise<LookPage> {
    const { partition, scan, after } = readCursor(query.cursor, this.#partitions.length);
    const locks = locksOf(this.#partitions[partition] as string);
    const [next, found, first] = await scanKeys(this.#connection, locks, query, scan, after);
    const left = [...new Set(found)].filter((key) => key > after).sort();
    const shown = left.slice(0, query.limit);
    const statuses = await Promise.all(shown.map((key) => this.#lookAt(key, query.maxClaims)));
    const keys = statuses.filter((status) => status.heldCount + status.waitingCount > 0);
    if (left.length > shown.length) return { keys, cursor: `${partition}.${first}.${shown.at(-1)}` };
    if (next !== "0") return { keys, cursor: `${partition}.${next}.` };
    if (partition + 1 < this.#partitions.length) return { keys, cursor: `${partition + 1}.0.` };
    return { keys };
  }
}

/** What a claim is asked for with, apart from its own names. Mostly what the one before was asked for with. */
class Terms {
  #last: ClaimRequest | undefined;
  #text = "";

  /** Checks all of the request. */
  textOf(request: ClaimRequest): string {
    if (this.#last !== undefined && haveSameTerms(request, this.#last)) {
      checkRenewRef(request);
    } else {
      checkRequest(request);
      const { ttlMs, weight, limit, priority, owner, info, application } = request;
      const most = limit === UNLIMITED ? 0 : limit;
      const terms = [ttlMs, weight, most, priority, owner];
      this.#text = JSON.stringify(info === "" && application === "" ? terms : [...terms, info, application]);
      this.#last = { ...request };
    }
    return this.#text;
  }
}

function haveSameTerms(a: ClaimRequest, b: ClaimRequest): boolean {
  return (
    a.ttlMs === b.ttlMs &&
    a.weight === b.weight &&
    a.limit === b.limit &&
    a.priority === b.priority &&
    a.owner === b.owner &&
    a.info === b.info &&
    a.application === b.application
  );
}

function acquireAnswer(reply: Reply): AcquireAnswer {
  const state = reply.state();
  if (state === 1) return reply.held();
  if (state === 6 || state === ALIKE) return reply.heldAgain();
  if (state === 2) return reply.waiting();
  return { state: "refused", reason: refusals[reply.number()] as RefusalReason };
}

function renewAnswer(reply: Reply): RenewAnswer {
  const state = reply.number();
  if (state === 1) return reply.held();
  if (state === 2) return reply.waiting();
  return state === 5 ? { state: "gone", takenOverBy: reply.text() } : { state: "gone" };
}

function releaseAnswer(reply: Reply): readonly boolean[] {
  const state = reply.state();
  return state === 1 || state === ALIKE ? RELEASED : NOT_RELEASED;
}

const refusals: readonly (RefusalReason | undefined)[] = [undefined, "contended", "queue-full", "id-reused"];

function keyStatus(key: string, reply: Reply): KeyStatus {
  const fence = reply.fence();
  const heldCount = reply.number();
  const heldWeight = reply.number();
  const waitingCount = reply.number();
  const shown = { held: reply.number(), waiting: reply.number() };
  const held = Array.from({ length: shown.held }, () => claimStatus(reply));
  const waiting = Array.from({ length: shown.waiting }, () => claimStatus(reply));
  return { key, fence, held, heldCount, heldWeight, waiting, waitingCount };
}

function claimStatus(reply: Reply): ClaimStatus {
  const common = {
    id: reply.text(),
    weight: reply.number(),
    limit: reply.number() || UNLIMITED,
    priority: reply.number(),
    ttlMs: reply.number(),
    owner: reply.text(),
    info: reply.text(),
    application: reply.text(),
    expiresInMs: reply.number(),
  };
  const fence = reply.fence();
  const acquiredAtMs = reply.number();
  return fence === 0n ? { ...common, state: "waiting" } : { ...common, state: "held", fence, acquiredAtMs };
}

/** Neither part can contain a line break. */
function claimName({ key, id, token }: ClaimRef): string {
  return `${id}\n${token ?? ""}\n${key}`;
}

function checkKeyPrefix(prefix: string): string {
  if (typeof prefix === "string" && /^[^{}\p{Cc}]{1,64}$/u.test(prefix)) return prefix;
  throw invalid(`keyPrefix must be 1 to 64 characters without braces, not ${JSON.stringify(prefix)}.`);
}

interface Cursor {
  readonly partition: number;
  readonly scan: string;
  readonly after: string;
}

/** Redis takes no larger number for the place of a scan. */
const MAX_SCAN = 2n ** 64n - 1n;

function readCursor(cursor: string | undefined, partitions: number): Cursor {
  const match = /^(\d{1,4})\.(\d{1,20})\.(.*)$/s.exec(cursor ?? "0.0.");
  const [, partition, scan = "", after = ""] = match ?? [];
  const isSound = match !== null && Number(partition) < partitions && BigInt(scan) <= MAX_SCAN;
  if (isSound) return { partition: Number(partition), scan, after };
  throw invalid(`cursor must be the cursor of the previous page, not "${cursor}".`);
}
