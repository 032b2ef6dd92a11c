/**
 * Notices a server that has gone without a word, by a ping that it does not answer. When this process itself did not run,
 * the answer may be there already and only be unread.
 */
export interface SilenceWatchOptions {
  /** For how long a server may be silent after it was asked. */
  readonly silenceMs: number;
  /** Whether an answer is awaited. */
  isAwaiting(): boolean;
  ping(answered: () => void): void;
  onSilence(error: Error): void;
}

/** How often it is looked after whether the server still answers. */
const WATCH_MS = 1_000;

/** After this long without a word an idle connection is tried with a ping, so that a proxy in between does not forget it. */
const IDLE_PING_MS = 15_000;

export class SilenceWatch {
  readonly #options: SilenceWatchOptions;
  readonly #timer = setInterval(() => this.#look(), WATCH_MS).unref();
  #heardMs = performance.now();
  #lookedMs = performance.now();
  #pingedMs: number | undefined;

  constructor(options: SilenceWatchOptions) {
    this.#options = options;
  }

  /** The server has said something. */
  heard(): void {
    this.#heardMs = performance.now();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const { silenceMs, isAwaiting, ping, onSilence } = this.#options;
    const nowMs = performance.now();
    const paused = nowMs - this.#lookedMs > 2 * WATCH_MS;
    this.#lookedMs = nowMs;
    if (paused) return;
    if (this.#pingedMs !== undefined) {
      if (nowMs - Math.max(this.#pingedMs, this.#heardMs) > silenceMs) {
        onSilence(new Error(`The server has been silent for ${silenceMs} ms.`));
      }
      return;
    }
    if (nowMs - this.#heardMs < (isAwaiting() ? WATCH_MS : IDLE_PING_MS)) return;
    this.#pingedMs = nowMs;
    ping(() => {
      this.#pingedMs = undefined;
      this.heard();
    });
  }
}
