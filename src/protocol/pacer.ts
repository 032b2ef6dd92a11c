/**
 * Hands on what has been received, a message at a time, and lets what is written meanwhile be sent before the next.
 *
 * Node sends what was written to a stream of HTTP/2 only when the event loop comes round, and reads as much as there is at
 * once. Without this, two messages that arrive together are also answered together, and the two ends of a session work in
 * turns instead of side by side: 53,000 lock cycles a second where it could be 80,000.
 */
export class Pacer {
  readonly #handle: (message: Buffer) => number;
  readonly #onIdle: () => void;
  #messages: Buffer[] = [];
  #busy = false;

  /** `handle` returns how much work a message was, in operations. `onIdle` is told when nothing is left. */
  constructor(handle: (message: Buffer) => number, onIdle: () => void = () => {}) {
    this.#handle = handle;
    this.#onIdle = onIdle;
  }

  /** How many messages wait. */
  get length(): number {
    return this.#messages.length;
  }

  /** Whether everything has been handed on. */
  get isIdle(): boolean {
    return !this.#busy && this.#messages.length === 0;
  }

  push(messages: readonly Buffer[]): void {
    for (const message of messages) this.#messages.push(message);
    if (!this.#busy) this.#run();
  }

  /** Forgets what has not been handed on. */
  clear(): void {
    this.#messages = [];
  }

  /** Short messages go together, so that a lone caller is not kept waiting. */
  readonly #run = () => {
    this.#busy = true;
    let work = 0;
    while (work < ENOUGH_OPERATIONS) {
      const message = this.#messages.shift();
      if (message === undefined) {
        this.#busy = false;
        this.#onIdle();
        return;
      }
      work += 1 + this.#handle(message);
    }
    // Twice: Node sends at the end of a round of the event loop, after what was set for that round.
    setImmediate(() => setImmediate(this.#run));
  };
}

/** How many operations are done in one go, if there are so many. */
const ENOUGH_OPERATIONS = 16;
