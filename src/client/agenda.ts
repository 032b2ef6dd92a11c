/**
 * The claims of a client, by when the heartbeat looks at them next.
 *
 * They stand in two heaps. A claim begins in the near one. When its turn comes there and it is due only later, as a lease
 * is that has been granted meanwhile, it moves to the far one. Most claims are released before that, so a lock cycle
 * meets the claims of the last moments alone, however many leases are held for long.
 */
import { type HeapOrder, heapInsert, heapRemove, heapUpdate } from "../record/index.ts";

/** The slot of a claim that is in neither heap. */
export const UNTRACKED = -1;

/** What an agenda knows of a claim. */
export interface Planned {
  /** When something is due next. */
  readonly dueMs: number;
  /** When it is looked at next, no later than it is due. */
  wakeMs: number;
  /** Its place in its heap. */
  slot: number;
  isFar: boolean;
}

export class Agenda<T extends Planned> {
  readonly #near: T[] = [];
  readonly #far: T[] = [];

  get isEmpty(): boolean {
    return this.#near.length === 0 && this.#far.length === 0;
  }

  /** The claim to look at next. */
  get next(): T | undefined {
    const near = this.#near[0];
    const far = this.#far[0];
    return near === undefined || (far !== undefined && far.wakeMs < near.wakeMs) ? far : near;
  }

  all(): T[] {
    return [...this.#near, ...this.#far];
  }

  /**
   * Takes a claim in, or takes note that its `dueMs` has changed. A claim that became due later stays where it is, and
   * is put right when its turn comes: most are renewed or released before that. Whether it is now looked at earlier.
   */
  plan(claim: T): boolean {
    const { dueMs } = claim;
    if (claim.slot === UNTRACKED) {
      claim.isFar = false;
      claim.wakeMs = dueMs;
      heapInsert(this.#near, claim, byWake);
      return true;
    }
    if (dueMs >= claim.wakeMs) return false;
    this.#move(claim);
    return true;
  }

  /** Puts a claim right whose turn came before it was due. */
  postpone(claim: T): void {
    if (claim.isFar) {
      this.#move(claim);
      return;
    }
    heapRemove(this.#near, claim, byWake);
    claim.isFar = true;
    claim.wakeMs = claim.dueMs;
    heapInsert(this.#far, claim, byWake);
  }

  remove(claim: T): void {
    heapRemove(this.#heapOf(claim), claim, byWake);
    claim.slot = UNTRACKED;
  }

  /** To its new place in the heap that it is in. */
  #move(claim: T): void {
    claim.wakeMs = claim.dueMs;
    heapUpdate(this.#heapOf(claim), claim, byWake);
  }

  #heapOf(claim: T): T[] {
    return claim.isFar ? this.#far : this.#near;
  }
}

const byWake: HeapOrder<Planned> = {
  before: (a, b) => a.wakeMs < b.wakeMs,
  slotOf: (claim) => claim.slot,
  setSlot: (claim, slot) => {
    claim.slot = slot;
  },
};
