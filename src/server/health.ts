/** Whether the server can be used: not when its store does not answer, and not when it is about to stop. */
import type { Store } from "../core/index.ts";

/** A key that is looked at to see whether the store answers. Nobody takes it. */
const PROBED_KEY = "holdfast:health";

/** How long the store may take. */
const PATIENCE_MS = 2_000;

/** For how long an answer is good, so that asking often does not cost the store. */
const GOOD_MS = 1_000;

export class Health {
  readonly #store: Store;
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
      this.#probe = this.#answers();
    }
    return (await this.#probe) && !this.#stopping;
  }

  async #answers(): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(false), PATIENCE_MS).unref();
    });
    const look = Promise.resolve()
      .then(() => this.#store.look({ key: PROBED_KEY, maxClaims: 0 }))
      .then(
        () => true,
        () => false,
      );
    const answers = await Promise.race([look, silence]);
    clearTimeout(timer);
    return answers;
  }
}
