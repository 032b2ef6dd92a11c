/** Reads the binary form of protocol buffers: the counterpart of `Writer`. */
import { isUtf8 } from "node:buffer";

/** Wire types: the lower three bits of a tag. */
const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

const TWO_32 = 0x1_0000_0000;

/** An invalid message. It ends its session. */
export class MalformedMessage extends Error {
  override readonly name = "MalformedMessage";
}

/** Reads a message field by field. Throws {@link MalformedMessage} for an invalid one. */
export class Reader {
  readonly #bytes: Buffer;
  #at: number;
  #end: number;
  #type = VARINT;
  readonly #maxTextBytes: number;

  constructor(bytes: Buffer, maxTextBytes = Number.POSITIVE_INFINITY) {
    this.#bytes = bytes;
    this.#maxTextBytes = maxTextBytes;
    this.#at = 0;
    this.#end = bytes.length;
  }

  /** The number of the next field, or 0 at the end of the message. */
  field(): number {
    if (this.#at >= this.#end) return 0;
    const tag = this.#varint();
    this.#type = tag & 7;
    const field = tag >>> 3;
    if (field === 0) throw new MalformedMessage("There is no field 0.");
    return field;
  }

  uint32(): number {
    this.#expect(VARINT);
    return this.#varint();
  }

  /** A whole number of up to 53 bits. */
  integer(): number {
    const value = this.uint64();
    if (value > Number.MAX_SAFE_INTEGER) throw new MalformedMessage("A number is too large.");
    return Number(value);
  }

  uint64(): bigint {
    this.#expect(VARINT);
    // In halves of 28 bits, since most fences fit into a JavaScript number.
    let low = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.#byte();
      low |= (byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt(low);
    }
    let high = 0;
    for (let factor = 1; factor < 0x8_0000_0000; factor *= 0x80) {
      const byte = this.#byte();
      high += (byte & 0x7f) * factor;
      if (byte < 0x80) {
        return high < 0x200_0000 ? BigInt(high * 0x1000_0000 + low) : joined(high, low);
      }
    }
    const last = this.#byte();
    if (last > 1) throw new MalformedMessage("A number is longer than 64 bits.");
    return joined(high + last * 0x8_0000_0000, low);
  }

  bool(): boolean {
    return this.uint32() !== 0;
  }

  text(): string {
    const end = this.#lengthEnd();
    const start = this.#at;
    this.#at = end;
    if (end - start > this.#maxTextBytes) {
      throw new MalformedMessage(`A text has ${end - start} bytes, and the limit is ${this.#maxTextBytes}.`);
    }
    const text = this.#bytes.toString("utf8", start, end);
    // Node decodes invalid UTF-8 as this character, so different keys could become one.
    if (text.includes("\ufffd") && !isUtf8(this.#bytes.subarray(start, end))) {
      throw new MalformedMessage("A text is not UTF-8.");
    }
    return text;
  }

  bytes(): Buffer {
    const end = this.#lengthEnd();
    const bytes = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return bytes;
  }

  /** Appends booleans, packed or single. */
  bools(values: boolean[]): void {
    if (this.#type === VARINT) {
      values.push(this.#varint() !== 0);
      return;
    }
    const end = this.#lengthEnd();
    while (this.#at < end) values.push(this.#varint() !== 0);
    if (this.#at !== end) throw new MalformedMessage("A list does not end at its length.");
  }

  /** Reads only the nested message until {@link leave}. Returns the argument for it. */
  enter(): number {
    const end = this.#lengthEnd();
    const outer = this.#end;
    this.#end = end;
    return outer;
  }

  leave(outer: number): void {
    this.#at = this.#end;
    this.#end = outer;
  }

  /** Skips an unknown field. */
  skip(): void {
    switch (this.#type) {
      case VARINT:
        this.#skipVarint();
        return;
      case BYTES:
        this.#at = this.#lengthEnd();
        return;
      case FIXED64:
        this.#advance(8);
        return;
      case FIXED32:
        this.#advance(4);
        return;
      default:
        throw new MalformedMessage(`The wire type ${this.#type} is not valid here.`);
    }
  }

  #expect(type: number): void {
    if (this.#type !== type) throw new MalformedMessage("A field has the wrong type.");
  }

  #lengthEnd(): number {
    this.#expect(BYTES);
    const end = this.#varint() + this.#at;
    if (end > this.#end) throw new MalformedMessage("A field is longer than its message.");
    return end;
  }

  #advance(bytes: number): void {
    this.#at += bytes;
    if (this.#at > this.#end) throw new MalformedMessage("A field is longer than its message.");
  }

  #byte(): number {
    if (this.#at >= this.#end) throw new MalformedMessage("A message ends in the middle of a number.");
    return this.#bytes[this.#at++] as number;
  }

  #varint(): number {
    let value = this.#byte();
    if (value < 0x80) return value;
    value &= 0x7f;
    for (let factor = 0x80; factor <= 0x1000_0000; factor *= 0x80) {
      const byte = this.#byte();
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) {
        if (value >= TWO_32) break;
        return value;
      }
    }
    throw new MalformedMessage("A number is longer than 32 bits.");
  }

  #skipVarint(): void {
    for (let size = 1; size <= 10; size++) if (this.#byte() < 0x80) return;
    throw new MalformedMessage("A number is longer than 64 bits.");
  }
}

function joined(high: number, low: number): bigint {
  return (BigInt(high) << 28n) | BigInt(low);
}
