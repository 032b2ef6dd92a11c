/** Counts what comes on a stream of HTTP/2 while it is paused: Node tells nothing of that until the stream is read again. */
import type { ServerHttp2Stream } from "node:http2";

/** About how much memory Node takes for a frame of data, even if it has one byte. */
const FRAME_BYTES = 256;

export class UnreadFrames {
  readonly #stream: ServerHttp2Stream;
  #count = 0;

  /** `onFrame` is told of each that comes. A window of a mebibyte has room for a million of them. */
  constructor(stream: ServerHttp2Stream, onFrame: (count: number) => void) {
    this.#stream = stream;
    const push = stream.push.bind(stream);
    stream.push = (piece: Buffer | null) => {
      if (piece === null || !stream.isPaused()) return push(piece);
      onFrame(++this.#count);
      // Without a copy, each piece keeps all that was read along with it.
      return push(Buffer.from(piece));
    };
  }

  get keptBytes(): number {
    return this.#stream.readableLength + this.#count * FRAME_BYTES;
  }

  /** The stream is read again. */
  clear(): void {
    this.#count = 0;
  }
}
