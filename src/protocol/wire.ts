/**
 * Writes and reads the binary form of protocol buffers, as far as the session's messages need it.
 *
 * The library that everything else uses describes messages by data and walks over it, which costs some microseconds a
 * message. A session carries hundreds of thousands of operations a second, so its messages are written by hand, in the
 * same form: test/protocol compares the two.
 */
import { isUtf8 } from "node:buffer";

/** How a field is written; the lower three bits of its tag. */
export const VARINT = 0;
const FIXED64 = 1;
export const BYTES = 2;
const FIXED32 = 5;

/** From here on a number does not fit into 32 bits. */
const TWO_32 = 0x1_0000_0000;

/** Texts up to this length are copied by a loop: a call into Node costs more. */
const SHORT_TEXT = 48;

const FIRST_SIZE = 4_096;

/** A message in the making. */
export class Writer {
  #bytes = Buffer.allocUnsafe(FIRST_SIZE);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** What has been written. The writer must not be used after that. */
  finish(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Room for something whose value is known later, such as the length of a whole message. */
  skip(bytes: number): void {
    this.#reserve(bytes);
    this.#length += bytes;
  }

  /** A whole number of up to 32 bits; left out when it is 0, as protocol buffers do. */
  uint32(field: number, value: number): void {
    if (value === 0) return;
    this.#reserve(10);
    this.#tag(field, VARINT);
    this.#varint(value);
  }

  /** A whole number of up to 53 bits. */
  integer(field: number, value: number): void {
    if (value === 0) return;
    this.#reserve(15);
    this.#tag(field, VARINT);
    this.#bigVarint(value);
  }

  /** A fence. */
  uint64(field: number, value: bigint): void {
    if (value <= Number.MAX_SAFE_INTEGER) {
      this.integer(field, Number(value));
      return;
    }
    this.#reserve(15);
    this.#tag(field, VARINT);
    let rest = value;
    while (rest > 0x7fn) {
      this.#bytes[this.#length++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    this.#bytes[this.#length++] = Number(rest);
  }

  bool(field: number, value: boolean): void {
    if (value) this.uint32(field, 1);
  }

  /** A text; left out when it is empty. */
  text(field: number, value: string): void {
    if (value.length > 0) this.element(field, value);
  }

  /** One of several texts, written also when it is empty. */
  element(field: number, value: string): void {
    this.#reserve(10 + 3 * value.length);
    this.#tag(field, BYTES);
    if (value.length > SHORT_TEXT || !this.#shortText(value)) {
      const size = Buffer.byteLength(value);
      this.#varint(size);
      this.#length += this.#bytes.write(value, this.#length);
    }
  }

  /** A message that has been written elsewhere. */
  bytes(field: number, value: Uint8Array): void {
    this.#reserve(10 + value.length);
    this.#tag(field, BYTES);
    this.#varint(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
  }

  /** Several yes-or-no's, packed. */
  bools(field: number, values: readonly boolean[]): void {
    if (values.length === 0) return;
    this.#reserve(10 + values.length);
    this.#tag(field, BYTES);
    this.#varint(values.length);
    for (const value of values) this.#bytes[this.#length++] = value ? 1 : 0;
  }

  /** Begins a message inside this one. Returns what {@link end} wants to know. */
  begin(field: number): number {
    this.#reserve(10);
    this.#tag(field, BYTES);
    // Its length mostly fits into one byte. Where it does not, `end` makes room.
    return ++this.#length;
  }

  end(start: number): void {
    const size = this.#length - start;
    if (size < 0x80) {
      this.#bytes[start - 1] = size;
      return;
    }
    const extra = varintSize(size) - 1;
    this.#reserve(extra);
    this.#bytes.copyWithin(start + extra, start, this.#length);
    this.#length = start - 1;
    this.#varint(size);
    this.#length += size;
  }

  /** Copies as it goes, as long as it is ASCII. Whether it was. */
  #shortText(value: string): boolean {
    const bytes = this.#bytes;
    let at = this.#length;
    bytes[at++] = value.length;
    for (let index = 0; index < value.length; index++) {
      const code = value.charCodeAt(index);
      if (code > 0x7f) return false;
      bytes[at++] = code;
    }
    this.#length = at;
    return true;
  }

  #tag(field: number, type: number): void {
    this.#bytes[this.#length++] = (field << 3) | type;
  }

  #varint(value: number): void {
    let rest = value;
    while (rest > 0x7f) {
      this.#bytes[this.#length++] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    this.#bytes[this.#length++] = rest;
  }

  #bigVarint(value: number): void {
    let rest = value;
    while (rest >= TWO_32) {
      this.#bytes[this.#length++] = (rest % 0x80) | 0x80;
      rest = Math.floor(rest / 0x80);
    }
    this.#varint(rest);
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(2 * this.#bytes.length, this.#length + more));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest > 0x7f; rest >>>= 7) size++;
  return size;
}

/** A message that is not one. What was sent is not acted upon any further. */
export class MalformedMessage extends Error {
  override readonly name = "MalformedMessage";
}

/** A message, read field by field. Throws {@link MalformedMessage} rather than to read past its end. */
export class Reader {
  readonly #bytes: Buffer;
  #at: number;
  #end: number;
  #type = VARINT;
  readonly #maxTextBytes: number;

  /** A text that is longer than `maxTextBytes` makes the message malformed. */
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
    // In halves of 28 bits, because most fences fit into a number of JavaScript's.
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
      throw new MalformedMessage(
        `A text has ${end - start} bytes, and at most ${this.#maxTextBytes} are read.`,
      );
    }
    const text = this.#bytes.toString("utf8", start, end);
    // What is not UTF-8 is read as this character. Two keys must not become one.
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

  /** Appends yes-or-no's, packed or one by one. */
  bools(values: boolean[]): void {
    if (this.#type === VARINT) {
      values.push(this.#varint() !== 0);
      return;
    }
    const end = this.#lengthEnd();
    while (this.#at < end) values.push(this.#varint() !== 0);
    if (this.#at !== end) throw new MalformedMessage("A list does not end at its length.");
  }

  /** Reads only the message inside this one until {@link leave}, which wants what this returns. */
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

  /** Passes over a field that this version does not know. */
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
