/** Readiness: the store grants locks, and the server is not about to stop. */
import { randomUUID } from "node:crypto";
import { withTimeout } from "../platform/index.ts";
import { type ClaimRequest, type Store, UNLIMITED } from "../store/index.ts";

/** A store that takes longer counts as not ready. */
const PROBE_TIMEOUT_MS = 2_000;

const TTL_MS = 10_000;

/** The key of the health check on all servers. Clients cannot use it. */
export const HEALTH_KEY = "holdfast:health";

/** A result is reused for this time, so that frequent checks do not load the store. */
const CACHE_MS = 1_000;

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
    if (this.#probe === undefined || nowMs - this.#probedMs > CACHE_MS) {
      this.#probedMs = nowMs;
      this.#probe = this.#grants();
    }
    return (await this.#probe) && !this.#stopping;
  }

  /** Acquires a lock, since a read-only replica and a full disk still answer reads. */
  #grants(): Promise<boolean> {
    const cycle = this.#cycle().catch(() => false);
    return withTimeout(PROBE_TIMEOUT_MS, cycle, () => false);
  }

  async #cycle(): Promise<boolean> {
    const { state } = await this.#store.acquire(this.#request);
    // Ignores the answer: with a slow store, an overlapping cycle may have released the same claim already.
    await this.#store.release([this.#request]);
    return state === "held";
  }
}

/** Shared, so servers do not block each other. One key for all servers, so they agree if a part of the store is down. */
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
    info: "health check of the server",
    application: "holdfast",
  };
}
