/** Events that wait for the stream to take them. A later event of a kind replaces an earlier one, so the queue is bounded. */
export class EventQueue<T> {
  readonly #events = new Map<string, T>();
  #wake: (() => void) | undefined;

  put(kind: string, event: T): void {
    this.#events.set(kind, event);
    this.#wake?.();
    this.#wake = undefined;
  }

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
