import type { RecordClaim } from "../../record/index.ts";

/**
 * The claims that a turn has granted. It keeps its room from turn to turn: an array that is emptied gives it back, and
 * would be made anew in every lock cycle, with room for 17.
 */
export class GrantList {
  readonly #claims: (RecordClaim | undefined)[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(claim: RecordClaim): void {
    this.#claims[this.#size++] = claim;
  }

  /** The claim that was granted as the `nth`, from 0. */
  at(nth: number): RecordClaim {
    return this.#claims[nth] as RecordClaim;
  }

  clear(): void {
    while (this.#size > 0) this.#claims[--this.#size] = undefined;
  }
}
