/** How a client learns that a waiting claim of its was granted: by the replies to itself, or by a channel of its own. */
import type { GrantListener, GrantRef, Unsubscribe } from "../../store/index.ts";
import type { Connection } from "./connection.ts";
import { mapError } from "./errors.ts";
import type { Subscription } from "./subscription.ts";

/** How long to wait before a subscription that failed is tried again: once soon, then less often. */
const FIRST_RETRY_MS = 100;
const RETRY_MS = 2_000;
/** The same where it is not permitted, which rarely changes. */
const RETRY_UNAUTHORIZED_MS = 60_000;
/** How long a request that waits is held back until its owner listens. Missing a grant costs no more than a heartbeat. */
const READY_MS = 1_000;

interface Owner {
  readonly name: string;
  readonly listener: GrantListener;
  subscription: Subscription | undefined;
  /** Settles with the first attempt to subscribe, whatever it came to. Undefined from then on. */
  ready: Promise<void> | undefined;
  retry: NodeJS.Timeout | undefined;
  /** How often in a row it failed to subscribe. */
  failures: number;
}

export class WakeUps {
  readonly #connection: Connection;
  readonly #channelPrefix: string;
  readonly #owners = new Map<string, Owner>();
  #ownersText: string | undefined;
  /** The latest request that is held back until its owner listens. */
  #heldBack: Promise<void> | undefined;
  #warned = false;

  constructor(connection: Connection, channelPrefix: string) {
    this.#connection = connection;
    this.#channelPrefix = channelPrefix;
  }

  /** The clients of this store, as JSON. */
  get ownersText(): string {
    this.#ownersText ??= JSON.stringify([...this.#owners.keys()]);
    return this.#ownersText;
  }

  listen(name: string, listener: GrantListener): Unsubscribe {
    const owner: Owner = {
      name,
      listener,
      subscription: undefined,
      ready: undefined,
      retry: undefined,
      failures: 0,
    };
    const before = this.#owners.get(name);
    if (before !== undefined) this.#end(before);
    this.#owners.set(name, owner);
    this.#ownersText = undefined;
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
      this.#ownersText = undefined;
      this.#end(owner);
    };
  }

  /**
   * When a request that waits may be sent: undefined for at once, which it is when its owner listens or has been found
   * unable to.
   *
   * Nor may it overtake a request that is held back for another owner of this store. Over one server nobody could
   * tell, because the first is not answered yet. But of several servers a majority answers for all: the second is
   * then asked for when the first has been answered, and must not come first on a server that was slow to subscribe.
   */
  ready(name: string): Promise<void> | undefined {
    const listening = this.#owners.get(name)?.ready;
    if (listening === undefined && this.#heldBack === undefined) return undefined;
    const turn = Promise.all([this.#heldBack, listening]).then(() => {
      // Whoever asks in the same turn of the event loop still has to queue up behind this one.
      setImmediate(() => {
        if (this.#heldBack === turn) this.#heldBack = undefined;
      });
    });
    this.#heldBack = turn;
    return turn;
  }

  tell(name: string, ref: GrantRef): void {
    this.#owners.get(name)?.listener([ref]);
  }

  close(): void {
    for (const owner of this.#owners.values()) this.#end(owner);
    this.#owners.clear();
    this.#ownersText = undefined;
  }

  #end(owner: Owner): void {
    clearTimeout(owner.retry);
    owner.subscription?.end();
  }

  #subscribe(owner: Owner, settle: () => void): void {
    owner.subscription = this.#connection.listen(`${this.#channelPrefix}${owner.name}`, {
      onMessage: (message) => {
        // A client that shares its connection goes on handing messages out until the server has confirmed the end.
        if (this.#owners.get(owner.name) === owner) owner.listener([readMessage(message)]);
      },
      onListening: () => {
        owner.failures = 0;
        settle();
      },
      onBroken: (error) => {
        settle();
        owner.retry = setTimeout(
          () => this.#subscribe(owner, settle),
          this.#retryAfter(error, ++owner.failures),
        ).unref();
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
    // An outage passes, and is reported by every call meanwhile.
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

function readMessage(message: string): GrantRef {
  const [key, id, fence] = JSON.parse(message) as [string, string, string];
  return { key, id, fence: BigInt(fence) };
}
