/** Where a generator waits: until something has changed, or its consumer ends it. */
export class Waiting {
  over = false;
  #resume = () => {};

  /** Something may have changed. */
  readonly wake = () => this.#resume();

  readonly end = () => {
    this.over = true;
    this.#resume();
  };

  /** Resolves at the next `wake`, or once it is over. */
  pause(): Promise<void> {
    if (this.over) return Promise.resolve();
    return new Promise((resolve) => {
      this.#resume = resolve;
    });
  }
}

/**
 * A generator that `return` and `throw` end also while its `next` is pending, which then resolves as done. By themselves they would
 * wait for that `next`, perhaps for ever.
 */
export function endable<T>(
  generate: (waiting: Waiting) => AsyncGenerator<T, void, void>,
): AsyncGenerator<T, void, void> {
  const waiting = new Waiting();
  const generator = generate(waiting);
  const leave = generator.return.bind(generator);
  const fail = generator.throw.bind(generator);
  return Object.assign(generator, {
    return(value: void | PromiseLike<void>) {
      waiting.end();
      return leave(value);
    },
    throw(error: unknown) {
      waiting.end();
      return fail(error);
    },
  });
}
