import type { Writable } from "node:stream";

/** How much may wait to be sent before it is an outage. */
const MAX_UNSENT_BYTES = 67_108_864;

/** Messages to a server that may read more slowly than it is asked, in order and within bounds. */
export class Outbox {
  readonly #stream: Writable;
  readonly #onFull: (error: Error) => void;
  #blocked = false;
  #frames: Buffer[] = [];
  #unsentBytes = 0;

  constructor(stream: Writable, onFull: (error: Error) => void) {
    this.#stream = stream;
    this.#onFull = onFull;
    stream.on("drain", () => this.#drained());
  }

  send(frame: Buffer): void {
    if (!this.#blocked) {
      this.#blocked = !this.#stream.write(frame);
      return;
    }
    this.#frames.push(frame);
    this.#unsentBytes += frame.length;
    if (this.#unsentBytes > MAX_UNSENT_BYTES)
      this.#onFull(new Error("The server does not read what is asked."));
  }

  clear(): void {
    this.#frames = [];
    this.#unsentBytes = 0;
  }

  #drained(): void {
    this.#blocked = false;
    const frames = this.#frames;
    this.clear();
    for (const frame of frames) this.send(frame);
  }
}
