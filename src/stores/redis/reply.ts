/** The lines that the script replies, from which each operation reads its own, in order. */
import type { HeldAnswer, WaitingAnswer } from "../../store/index.ts";

const MINUS = 45;
const ZERO = 48;

/** The state of an operation that came to what the first of the call did. */
export const ALIKE = 7;

export class Reply {
  readonly #text: string;
  #at: number;
  #highestFence = 0;
  #allAlike = false;
  /** What was read of the last claim. */
  #fence = 0n;
  #acquiredAtMs = 0;
  #expiresInMs = 0;

  constructor(text: string, start: number) {
    this.#text = text;
    this.#at = start;
  }

  get ended(): boolean {
    return this.#at >= this.#text.length;
  }

  /** Whether what follows is negative, as only the failure of one operation alone is. */
  get fails(): boolean {
    return this.#text.charCodeAt(this.#at) === MINUS;
  }

  /** The highest fence of the claims that were read. */
  get highestFence(): number {
    return this.#highestFence;
  }

  text(): string {
    const end = this.#text.indexOf("\n", this.#at);
    const text = this.#text.slice(this.#at, end < 0 ? this.#text.length : end);
    this.#at += text.length + 1;
    return text;
  }

  /** A whole number of 0 or more. Read digit by digit: to cut it out first would be most of the cost. */
  number(): number {
    const text = this.#text;
    const start = this.#at;
    let at = start;
    let number = 0;
    // Past the end there is no character, which is no digit either.
    for (
      let digit = text.charCodeAt(at) - ZERO;
      digit >= 0 && digit <= 9;
      digit = text.charCodeAt(at) - ZERO
    ) {
      number = number * 10 + digit;
      at++;
    }
    this.#at = at + 1;
    return at === start ? Number.NaN : number;
  }

  /** What an operation came to. Once it is told that all are like the first, the others have no line of their own. */
  state(): number {
    if (this.#allAlike) return ALIKE;
    const state = this.number();
    if (state === ALIKE) this.#allAlike = true;
    return state;
  }

  held(): HeldAnswer {
    this.#noteFence(this.number());
    this.#acquiredAtMs = this.number();
    this.#expiresInMs = this.number();
    return this.#heldAnswer();
  }

  /** Like the claim that was read last. */
  heldAgain(): HeldAnswer {
    return this.#heldAnswer();
  }

  waiting(): WaitingAnswer {
    const expiresInMs = this.number();
    const retryInMs = this.number();
    this.#noteFence(this.number());
    return { state: "waiting", expiresInMs, retryInMs, fence: this.#fence };
  }

  fence(): bigint {
    return BigInt(this.number());
  }

  #heldAnswer(): HeldAnswer {
    return {
      state: "held",
      fence: this.#fence,
      acquiredAtMs: this.#acquiredAtMs,
      expiresInMs: this.#expiresInMs,
    };
  }

  #noteFence(fence: number): void {
    this.#fence = BigInt(fence);
    if (fence > this.#highestFence) this.#highestFence = fence;
  }
}
