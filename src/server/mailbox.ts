/** Where events wait for a stream to take them. Bounded: of the same kind only the latest is kept. */
export class Mailbox<T> {
  readonly #events = new Map<string, T>();
  #wake: (() => void) | undefined;

  /** Puts an event there, in place of an earlier one of the same kind. */
  put(kind: string, event: T): void {
    this.#events.set(kind, event);
    this.#wake?.();
    this.#wake = undefined;
  }

  /** The next event, in the order in which the kinds came. */
  async take(): Promise<T> {
    for (;;) {
      for (const [kind, event] of this.#events) {
        this.#events.delete(kind);
        return event;
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
