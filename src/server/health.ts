/** Whether the server can be used: not when its store grants no lock, and not when it is about to stop. */
import { randomUUID } from "node:crypto";
import { type ClaimRequest, type Store, UNLIMITED } from "../store/index.ts";

/** How long the store may take. */
const PATIENCE_MS = 2_000;

/** How long a lock is held that could not be given back. */
const TTL_MS = 10_000;

/** The key that all servers take to see whether the store grants locks. No client may ask for it. */
export const HEALTH_KEY = "holdfast:health";

/** For how long an answer is good, so that asking often does not cost the store. */
const GOOD_MS = 1_000;

export class Health {
  readonly #store: Store;
  readonly #request = newRequest();
  #stopping = false;
  #probe: Promise<boolean> | undefined;
  #probedMs = Number.NEGATIVE_INFINITY;

  constructor(store: Store) {
    this.#store = store;
  }

  stop(): void {
    this.#stopping = true;
  }

  async isReady(): Promise<boolean> {
    if (this.#stopping) return false;
    const nowMs = performance.now();
    if (this.#probe === undefined || nowMs - this.#probedMs > GOOD_MS) {
      this.#probedMs = nowMs;
      this.#probe = this.#grants();
    }
    return (await this.#probe) && !this.#stopping;
  }

  /** A replica and a full disk answer whoever looks, so it takes a lock to know. */
  async #grants(): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(false), PATIENCE_MS).unref();
    });
    const cycle = this.#cycle().catch(() => false);
    const grants = await Promise.race([cycle, silence]);
    clearTimeout(timer);
    return grants;
  }

  async #cycle(): Promise<boolean> {
    const { state } = await this.#store.acquire(this.#request);
    // Where the store is slow, another cycle may have the same claim, and have given it back already.
    await this.#store.release([this.#request]);
    return state === "held";
  }
}

/** All servers share one key, so that they agree where a part of the store is down, and none is in the way of another. */
function newRequest(): ClaimRequest {
  const id = randomUUID();
  return {
    key: HEALTH_KEY,
    id,
    token: randomUUID(),
    weight: 1,
    limit: UNLIMITED,
    priority: 0,
    ttlMs: TTL_MS,
    wait: false,
    owner: `holdfast-health:${id}`,
    info: "the server's health",
    application: "holdfast",
  };
}
