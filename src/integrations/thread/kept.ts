import type { KeptClaim, StandbyLoss, StandbyTerms } from "../../client/index.ts";
import type { ClaimRef } from "../../store/index.ts";
import { Cell } from "./cell.ts";
import type { KeepOrder } from "./protocol.ts";

/** A lease that the other thread looks after. Numbers of the client's clock on this side, of the shared time in the cell. */
export class Kept implements KeptClaim {
  readonly ref: ClaimRef;
  readonly onLoss: () => void;
  readonly #onDrop: () => void;
  readonly #terms: StandbyTerms;
  readonly #aheadMs: number;
  readonly #cell = new Cell();

  constructor(terms: StandbyTerms, aheadMs: number, onLoss: () => void, onDrop: () => void) {
    this.ref = terms.ref;
    this.onLoss = onLoss;
    this.#onDrop = onDrop;
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

  /** Also in the cell: a thread that does not turn sends no messages, and may know by its clock that the lease is over. */
  drop(): void {
    this.#cell.end();
    this.#onDrop();
  }

  order(number: number): KeepOrder {
    const { ref, fence, ttlMs, renewEveryMs, holdUntilMs } = this.#terms;
    return {
      number,
      key: ref.key,
      id: ref.id,
      token: ref.token,
      fence,
      ttlMs,
      renewEveryMs,
      holdUntilMs: holdUntilMs + this.#aheadMs,
      cell: this.#cell.buffer,
    };
  }
}
