import type { ClaimRef, KeptClaim, StandbyLoss, StandbyTerms } from "../core/index.ts";
import { Cell } from "./cell.ts";
import type { KeepOrder } from "./protocol.ts";

/** A lease that the other thread looks after. Numbers of the client's clock on this side, of the shared time in the cell. */
export class Kept implements KeptClaim {
  readonly ref: ClaimRef;
  readonly onLoss: () => void;
  readonly drop: () => void;
  readonly #terms: StandbyTerms;
  readonly #aheadMs: number;
  readonly #cell = new Cell();

  constructor(terms: StandbyTerms, aheadMs: number, onLoss: () => void, drop: () => void) {
    this.ref = terms.ref;
    this.onLoss = onLoss;
    this.drop = drop;
    this.#terms = terms;
    this.#aheadMs = aheadMs;
    this.prove(terms.provenUntilMs);
  }

  get provenUntilMs(): number {
    return this.#cell.secondProofMs - this.#aheadMs;
  }

  get loss(): StandbyLoss | undefined {
    return this.#cell.loss;
  }

  prove(untilMs: number): void {
    this.#cell.firstProofMs = untilMs + this.#aheadMs;
  }

  order(number: number): KeepOrder {
    const { ref, fence, ttlMs, holdUntilMs } = this.#terms;
    return {
      number,
      key: ref.key,
      id: ref.id,
      token: ref.token,
      fence,
      ttlMs,
      holdUntilMs: holdUntilMs + this.#aheadMs,
      cell: this.#cell.buffer,
    };
  }
}
