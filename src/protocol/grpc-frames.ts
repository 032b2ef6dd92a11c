/** The frames of gRPC around the messages of a stream: a byte of flags, four bytes of length, the message. */
import { GrowingBuffer } from "./growing-buffer.ts";
import { MalformedMessage } from "./wire-reader.ts";
import { Writer } from "./wire-writer.ts";

const PREFIX_BYTES = 5;

const COMPRESSED = 1;

/** A writer with room for the prefix of a frame. */
export function newFrame(): Writer {
  const writer = new Writer();
  writer.skip(PREFIX_BYTES);
  return writer;
}

/** Fills in the prefix of a message from {@link newFrame}. */
export function sealFrame(bytes: Buffer): Buffer {
  bytes[0] = 0;
  bytes.writeUInt32BE(bytes.length - PREFIX_BYTES, 1);
  return bytes;
}

/** Splits the bytes of a stream into messages. Buffers at most one incomplete message. */
export class FrameSplitter {
  readonly #maxBytes: number;
  #part: GrowingBuffer | undefined;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** The memory of the incomplete message. */
  get keptBytes(): number {
    return this.#part?.capacity ?? 0;
  }

  /** Returns the messages that this piece completes. Throws {@link MalformedMessage} if one is too long or compressed. */
  push(piece: Buffer): Buffer[] {
    this.#part?.push(piece);
    const bytes = this.#part?.bytes ?? piece;
    const messages: Buffer[] = [];
    let at = 0;
    while (bytes.length - at >= PREFIX_BYTES) {
      const end = at + PREFIX_BYTES + this.#messageSize(bytes, at);
      if (bytes.length < end) break;
      messages.push(bytes.subarray(at + PREFIX_BYTES, end));
      at = end;
    }
    if (at === bytes.length) this.#part = undefined;
    else if (this.#part === undefined || at > 0) {
      this.#part = new GrowingBuffer();
      this.#part.push(bytes.subarray(at));
    }
    return messages;
  }

  #messageSize(bytes: Buffer, at: number): number {
    if (bytes[at] === COMPRESSED) throw new MalformedMessage("Compressed messages are not supported.");
    if (bytes[at] !== 0) throw new MalformedMessage("A frame has unknown flags.");
    const size = bytes.readUInt32BE(at + 1);
    if (size > this.#maxBytes) {
      throw new MalformedMessage(`A message has ${size} bytes, and the limit is ${this.#maxBytes}.`);
    }
    return size;
  }
}
