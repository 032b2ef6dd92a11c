/**
 * Processes received messages one after another, and lets the answers of one be sent before the next.
 *
 * Node writes an HTTP/2 stream only between turns of the event loop. Without this queue, the two ends of a session worked in
 * alternation instead of in parallel: 53,000 lock cycles a second instead of 80,000.
 */

/** After this many operations, the answers are sent before the next message. */
const OPERATIONS_PER_TURN = 16;

export class MessageQueue {
  readonly #handle: (message: Buffer) => number;
  readonly #onIdle: () => void;
  #messages: Buffer[] = [];
  #isBusy = false;

  /** `handle` returns the number of operations in a message. `onIdle` is called when all messages are processed. */
  constructor(handle: (message: Buffer) => number, onIdle: () => void = () => {}) {
    this.#handle = handle;
    this.#onIdle = onIdle;
  }

  get length(): number {
    return this.#messages.length;
  }

  get isIdle(): boolean {
    return !this.#isBusy && this.#messages.length === 0;
  }

  push(messages: readonly Buffer[]): void {
    for (const message of messages) this.#messages.push(message);
    if (!this.#isBusy) this.#run();
  }

  clear(): void {
    this.#messages = [];
  }

  /** Short messages share a turn, so that a lone caller does not wait. */
  readonly #run = () => {
    this.#isBusy = true;
    let operations = 0;
    while (operations < OPERATIONS_PER_TURN) {
      const message = this.#messages.shift();
      if (message === undefined) {
        this.#isBusy = false;
        this.#onIdle();
        return;
      }
      operations += 1 + this.#handle(message);
    }
    // Twice, because Node writes after the immediates of the present turn.
    setImmediate(() => setImmediate(this.#run));
  };
}
