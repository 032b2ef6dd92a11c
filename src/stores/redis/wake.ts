/** Tells a client that its waiting claim was granted: from a reply to this process, or from a message on the client's own channel. */
import type { ClaimRef, ClaimRequest, GrantListener, GrantRef, Unsubscribe } from "../../store/index.ts";
import type { Connection } from "./client.ts";
import { mapError } from "./errors.ts";
import type { Subscription } from "./subscription.ts";

/** The pause before the first and each later attempt to repeat a failed subscription, and if it is not permitted. */
const FIRST_RETRY_MS = 100;
const RETRY_MS = 2_000;
const RETRY_UNAUTHORIZED_MS = 60_000;
/** The longest that an acquire waits for its owner to listen. A missed grant costs no more than a heartbeat. */
const READY_MS = 1_000;

interface Owner {
  readonly name: string;
  readonly listener: GrantListener;
  subscription?: Subscription;
  /** Settles with the first attempt to subscribe. Undefined from then on. */
  ready?: Promise<void> | undefined;
  retry?: NodeJS.Timeout;
  /** The number of failures to subscribe in a row. */
  failures: number;
}

export class Wake {
  readonly #connection: Connection;
  readonly #channelPrefix: string;
  readonly #owners = new Map<string, Owner>();
  /** The owners as JSON. */
  #ownersText = "[]";
  /** Acquires that wait until their owner listens, by claim, and the latest of them. */
  readonly #heldBack = new Map<string, Promise<void>>();
  #latest: Promise<void> | undefined;
  #warned = false;

  constructor(connection: Connection, channelPrefix: string) {
    this.#connection = connection;
    this.#channelPrefix = channelPrefix;
  }

  get ownersText(): string {
    return this.#ownersText;
  }

  listen(name: string, listener: GrantListener): Unsubscribe {
    const owner: Owner = { name, listener, failures: 0 };
    const former = this.#owners.get(name);
    if (former !== undefined) end(former);
    this.#owners.set(name, owner);
    this.#ownersChanged();
    owner.ready = new Promise((resolve) => {
      const settle = () => {
        clearTimeout(timer);
        owner.ready = undefined;
        resolve();
      };
      const timer = setTimeout(settle, READY_MS);
      this.#subscribe(owner, settle);
    });
    return () => {
      if (this.#owners.get(name) === owner) this.#owners.delete(name);
      this.#ownersChanged();
      end(owner);
    };
  }

  /**
   * When a waiting acquire may be sent; undefined for at once. It may not overtake an acquire of another owner that is held back: the
   * order of two acquires would differ between the servers of a majority.
   */
  ready(request: ClaimRequest): Promise<void> | undefined {
    const listening = this.#owners.get(request.owner)?.ready;
    if (listening === undefined && this.#latest === undefined) return undefined;
    const claim = nameOf(request);
    const turn = Promise.all([this.#latest, listening]).then(() => {
      // Acquires of the same turn of the event loop still queue up behind this one.
      setImmediate(() => {
        if (this.#latest === turn) this.#latest = undefined;
        if (this.#heldBack.get(claim) === turn) this.#heldBack.delete(claim);
      });
    });
    this.#latest = turn;
    this.#heldBack.set(claim, turn);
    return turn;
  }

  /** When a release may be sent; undefined for at once. It may not overtake its acquire, whose claim would stay until its ttl. */
  afterAcquire(ref: ClaimRef): Promise<void> | undefined {
    return this.#heldBack.size > 0 ? this.#heldBack.get(nameOf(ref)) : undefined;
  }

  tell(name: string, ref: GrantRef): void {
    this.#owners.get(name)?.listener([ref]);
  }

  close(): void {
    for (const owner of this.#owners.values()) end(owner);
    this.#owners.clear();
    this.#ownersChanged();
  }

  #ownersChanged(): void {
    this.#ownersText = JSON.stringify([...this.#owners.keys()]);
  }

  #subscribe(owner: Owner, settle: () => void): void {
    owner.subscription = this.#connection.listen(`${this.#channelPrefix}${owner.name}`, {
      onMessage: (message) => {
        // A shared connection delivers messages until the server has confirmed the end of the subscription.
        if (this.#owners.get(owner.name) === owner) owner.listener([readMessage(message)]);
      },
      onListening: () => {
        owner.failures = 0;
        settle();
      },
      onBroken: (error) => {
        settle();
        const retryMs = this.#retryAfter(error, ++owner.failures);
        owner.retry = setTimeout(() => this.#subscribe(owner, settle), retryMs).unref();
      },
    });
  }

  #retryAfter(error: unknown, failures: number): number {
    const { code } = mapError(error);
    if (code === "UNAUTHORIZED") {
      this.#warn(error);
      return RETRY_UNAUTHORIZED_MS;
    }
    if (failures === 1) return FIRST_RETRY_MS;
    // Calls report an outage already.
    if (code !== "STORE_UNAVAILABLE") this.#warn(error);
    return RETRY_MS;
  }

  #warn(cause: unknown): void {
    if (this.#warned) return;
    this.#warned = true;
    const reason = cause instanceof Error ? cause.message : String(cause);
    process.emitWarning(
      `Holdfast cannot subscribe to Redis (${reason}). Locks work, but a waiter notices a grant only at a heartbeat. Grant the rights that docs/stores/redis.md lists.`,
      { type: "HoldfastWarning", code: "NO_PUSH" },
    );
  }
}

function end(owner: Owner): void {
  clearTimeout(owner.retry);
  owner.subscription?.end();
}

/** Neither part contains a line break. */
function nameOf({ key, id, token }: ClaimRef): string {
  return `${id}\n${token ?? ""}\n${key}`;
}

function readMessage(message: string): GrantRef {
  const [key, id, fence] = JSON.parse(message) as [string, string, string];
  return { key, id, fence: BigInt(fence) };
}
