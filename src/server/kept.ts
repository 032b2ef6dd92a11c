/** Bounds what all calls and sessions together make the server keep: requests that are incomplete, and answers that are unread. */

/** A call or a session. */
export interface Keeper {
  /** Ends it, and frees what it keeps. */
  cutOff(reason: string): void;
}

export class Kept {
  readonly #maxBytes: number;
  /** The oldest comes first. */
  readonly #keepers = new Map<Keeper, number>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Cuts off the oldest while there is too much. Honest calls are short, so they are among the youngest. */
  set(keeper: Keeper, bytes: number): void {
    const former = this.#keepers.get(keeper) ?? 0;
    if (bytes === former) return;
    this.#bytes += bytes - former;
    if (bytes > 0) this.#keepers.set(keeper, bytes);
    else this.#keepers.delete(keeper);
    if (bytes < former) return;
    for (const oldest of this.#keepers.keys()) {
      if (this.#bytes <= this.#maxBytes || this.#keepers.size === 1) return;
      this.set(oldest, 0);
      oldest.cutOff("memory");
    }
  }

  add(keeper: Keeper, bytes: number): void {
    this.set(keeper, (this.#keepers.get(keeper) ?? 0) + bytes);
  }

  /** Nothing happens for a keeper that was cut off: it keeps nothing. */
  remove(keeper: Keeper, bytes: number): void {
    this.set(keeper, Math.max(0, (this.#keepers.get(keeper) ?? 0) - bytes));
  }
}
