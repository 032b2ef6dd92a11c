/** The frame that gRPC puts around each message of a stream: a byte of flags, four of length, the message. */
import { MalformedMessage } from "./wire.ts";

export const PREFIX_BYTES = 5;

const COMPRESSED = 1;

/** Fills in the prefix, for which the message has left room at its beginning. */
export function sealFrame(bytes: Buffer): Buffer {
  bytes[0] = 0;
  bytes.writeUInt32BE(bytes.length - PREFIX_BYTES, 1);
  return bytes;
}

/** Cuts what arrives into messages. Holds at most one message that is not whole yet. */
export class FrameSplitter {
  readonly #maxBytes: number;
  #parts: Buffer[] = [];
  #length = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Whether it is in the middle of a message. */
  get isInside(): boolean {
    return this.#length > 0;
  }

  /** The messages that are whole with this piece. Throws {@link MalformedMessage} when one is too long or compressed. */
  push(piece: Buffer): Buffer[] {
    this.#parts.push(piece);
    this.#length += piece.length;
    const messages: Buffer[] = [];
    for (;;) {
      if (this.#length < PREFIX_BYTES) return messages;
      const size = this.#messageSize();
      if (this.#length < PREFIX_BYTES + size) return messages;
      const all = this.#joined();
      messages.push(all.subarray(PREFIX_BYTES, PREFIX_BYTES + size));
      const rest = all.subarray(PREFIX_BYTES + size);
      this.#parts = rest.length === 0 ? [] : [rest];
      this.#length = rest.length;
    }
  }

  #messageSize(): number {
    let head = this.#parts[0] as Buffer;
    if (head.length < PREFIX_BYTES) head = this.#joined();
    if (head[0] === COMPRESSED) throw new MalformedMessage("Compressed messages are not supported.");
    if (head[0] !== 0) throw new MalformedMessage("A frame has unknown flags.");
    const size = head.readUInt32BE(1);
    if (size > this.#maxBytes) {
      throw new MalformedMessage(`A message has ${size} bytes, and the limit is ${this.#maxBytes}.`);
    }
    return size;
  }

  #joined(): Buffer {
    if (this.#parts.length > 1) this.#parts = [Buffer.concat(this.#parts, this.#length)];
    return this.#parts[0] as Buffer;
  }
}
