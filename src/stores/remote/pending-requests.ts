/** The unanswered requests of a connection, by their numbers. */
import type { ClaimRequest } from "../../store/index.ts";

export interface PendingRequest {
  readonly verb: "acquire" | "renew" | "release" | "look";
  /** The number of its message. */
  readonly message: number;
  readonly request: ClaimRequest | undefined;
  readonly resolve: (answer: never) => void;
  readonly reject: (error: unknown) => void;
}

export class PendingRequests {
  count = 0;
  /** The latest message with an answer. */
  answeredMessage = 0;
  /** A request has the index of its number less one. Numbers are reused. */
  readonly #slots: (PendingRequest | undefined)[] = [];
  readonly #free: number[] = [];

  add(pending: PendingRequest): number {
    const slot = this.#free.pop() ?? this.#slots.length;
    this.#slots[slot] = pending;
    this.count++;
    return slot + 1;
  }

  /** Removes a request. Throws if the server answers a request that does not exist or has another verb. */
  take(number: number, verb: PendingRequest["verb"] | undefined): PendingRequest {
    const pending = this.#slots[number - 1];
    if (pending === undefined || (verb !== undefined && pending.verb !== verb)) {
      throw new Error("The server gave an answer without a request.");
    }
    if (pending.message > this.answeredMessage) this.answeredMessage = pending.message;
    this.#slots[number - 1] = undefined;
    this.#free.push(number - 1);
    this.count--;
    return pending;
  }

  rejectAll(error: unknown): void {
    for (const pending of this.#slots) pending?.reject(error);
    this.#slots.length = 0;
  }
}
