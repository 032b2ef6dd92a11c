/** How a client learns that a waiting claim of its was granted: by the replies to itself, or by a channel of its own. */
import type { ClaimRef, GrantListener, Unsubscribe } from "../../core/index.ts";
import type { Connection, Subscription } from "./connection.ts";

/** How long to wait before a subscription that failed is tried again. */
const RETRY_MS = 2_000;

interface Owner {
  readonly name: string;
  readonly listener: GrantListener;
  subscription: Subscription | undefined;
  /** Settles with the first attempt to subscribe, whatever it came to. */
  ready: Promise<void> | undefined;
  gone: boolean;
}

export class WakeUps {
  readonly #connection: Connection;
  readonly #channelPrefix: string;
  readonly #owners = new Map<string, Owner>();
  #warned = false;

  constructor(connection: Connection, channelPrefix: string) {
    this.#connection = connection;
    this.#channelPrefix = channelPrefix;
  }

  /** The clients of this store. */
  get owners(): readonly string[] {
    return [...this.#owners.keys()];
  }

  listen(name: string, listener: GrantListener): Unsubscribe {
    const owner: Owner = { name, listener, subscription: undefined, ready: undefined, gone: false };
    this.#owners.set(name, owner);
    owner.ready = this.#subscribe(owner).finally(() => {
      owner.ready = undefined;
    });
    return () => {
      if (this.#owners.get(name) === owner) this.#owners.delete(name);
      this.#end(owner);
    };
  }

  /** Undefined once an owner listens, or has been found unable to. */
  ready(name: string): Promise<void> | undefined {
    return this.#owners.get(name)?.ready;
  }

  tell(name: string, ref: ClaimRef): void {
    this.#owners.get(name)?.listener([ref]);
  }

  close(): void {
    for (const owner of this.#owners.values()) this.#end(owner);
    this.#owners.clear();
  }

  #end(owner: Owner): void {
    owner.gone = true;
    owner.subscription?.end();
    owner.subscription = undefined;
  }

  async #subscribe(owner: Owner): Promise<void> {
    const onMessage = (message: string) => {
      const [key, id] = JSON.parse(message) as [string, string];
      owner.listener([{ key, id }]);
    };
    try {
      const subscription = await this.#connection.listen(
        `${this.#channelPrefix}${owner.name}`,
        onMessage,
        () => {},
      );
      if (owner.gone) subscription.end();
      else owner.subscription = subscription;
    } catch (error) {
      if (owner.gone) return;
      this.#warn(error);
      setTimeout(() => owner.gone || void this.#subscribe(owner), RETRY_MS).unref();
    }
  }

  #warn(cause: unknown): void {
    if (this.#warned) return;
    this.#warned = true;
    const reason = cause instanceof Error ? cause.message : String(cause);
    process.emitWarning(
      `Holdfast cannot subscribe to Redis (${reason}). Locks work, but a waiter notices its turn only at a heartbeat.`,
      { type: "HoldfastWarning", code: "NO_PUSH" },
    );
  }
}
