/**
 * Detects a dead connection by an unanswered ping. After a pause of this process it waits for another check, since the answer may
 * have arrived unread.
 */
export interface SilenceWatchOptions {
  /** The time for the server to answer. */
  readonly silenceMs: number;
  /** Whether an answer is pending. */
  isAwaiting(): boolean;
  ping(answered: () => void): void;
  onSilence(error: Error): void;
}

const WATCH_MS = 1_000;

/** An idle connection is pinged this often, so that a proxy does not drop it. */
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

  /** Data from the server has arrived. */
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
