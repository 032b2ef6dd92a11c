/** Bounds what all calls together make the server keep: requests that are incomplete, and answers that are unread. */
import type { Exchange } from "./exchange.ts";

export class Kept {
  readonly #maxBytes: number;
  /** The oldest comes first. */
  readonly #holders = new Map<Exchange, number>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Cuts off the oldest call while there is too much. Honest calls are short, so they are among the youngest. */
  add(exchange: Exchange, bytes: number): void {
    this.#holders.set(exchange, (this.#holders.get(exchange) ?? 0) + bytes);
    this.#bytes += bytes;
    for (const [oldest, kept] of this.#holders) {
      if (this.#bytes <= this.#maxBytes || this.#holders.size === 1) return;
      this.remove(oldest, kept);
      oldest.cutOff("memory");
    }
  }

  /** Nothing happens for a call that was cut off: it keeps nothing. */
  remove(exchange: Exchange, bytes: number): void {
    const kept = this.#holders.get(exchange);
    if (kept === undefined) return;
    this.#bytes -= bytes;
    if (kept > bytes) this.#holders.set(exchange, kept - bytes);
    else this.#holders.delete(exchange);
  }
}
