/** Bounds the memory of all calls and sessions together: incomplete requests and unread answers. */

/** A call or a session. */
export interface BudgetUser {
  /** Ends it, and frees its memory. */
  cutOff(reason: string): void;
}

export class MemoryBudget {
  readonly #maxBytes: number;
  /** The oldest user comes first. */
  readonly #users = new Map<BudgetUser, number>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Beyond the budget, cuts off the oldest users. Honest calls are short, so they are among the youngest. */
  set(user: BudgetUser, bytes: number): void {
    const former = this.#users.get(user) ?? 0;
    if (bytes === former) return;
    this.#bytes += bytes - former;
    if (bytes > 0) this.#users.set(user, bytes);
    else this.#users.delete(user);
    if (bytes < former) return;
    for (const oldest of this.#users.keys()) {
      if (this.#bytes <= this.#maxBytes || this.#users.size === 1) return;
      this.set(oldest, 0);
      oldest.cutOff("memory");
    }
  }

  add(user: BudgetUser, bytes: number): void {
    this.set(user, (this.#users.get(user) ?? 0) + bytes);
  }

  /** A user that was cut off has 0 bytes already. */
  remove(user: BudgetUser, bytes: number): void {
    this.set(user, Math.max(0, (this.#users.get(user) ?? 0) - bytes));
  }
}
