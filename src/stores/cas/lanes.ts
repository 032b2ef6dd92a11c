/** The lanes of the keys that were used lately, with what is known of each. */
import { Lane } from "./lane.ts";

/** How many of them stay when there is no room for another, so that there is room for some. */
const STAYING = 0.75;

/** Keeps about as many lanes as it may, and as many more as have something to do. */
export class Lanes {
  readonly #maxLanes: number;
  readonly #byKey = new Map<string, Lane>();
  #forgetFrom: number;

  constructor(maxLanes: number) {
    this.#maxLanes = maxLanes;
    this.#forgetFrom = maxLanes;
  }

  of(key: string): Lane {
    const known = this.#byKey.get(key);
    if (known !== undefined) {
      known.wasUsed = true;
      return known;
    }
    // Before the new one is there, which has nothing to do yet.
    if (this.#byKey.size >= this.#forgetFrom) this.#forget();
    const lane = new Lane(key);
    this.#byKey.set(key, lane);
    return lane;
  }

  /** The lane of a key, if there is one. */
  peek(key: string): Lane | undefined {
    return this.#byKey.get(key);
  }

  values(): Iterable<Lane> {
    return this.#byKey.values();
  }

  clear(): void {
    this.#byKey.clear();
  }

  /**
   * Whoever was used since last time is passed over once. Moving a key to the end with each use would be exact, and slow:
   * docs/decisions/0004-finding-claims-by-id.md says what a Map makes of keys that come and go.
   */
  #forget(): void {
    const most = Math.floor(STAYING * this.#maxLanes);
    for (let round = 0; round < 2 && this.#byKey.size > most; round++) {
      for (const [key, lane] of this.#byKey) {
        // What a conflict has brought along is for the next attempt: without it, no two keys might ever get on.
        if (!lane.isActive && !lane.wasUsed) this.#byKey.delete(key);
        lane.wasUsed = false;
        if (this.#byKey.size <= most) break;
      }
    }
    this.#forgetFrom = Math.max(this.#maxLanes, this.#byKey.size / STAYING);
  }
}
