/**
 * Writes the binary form of protocol buffers, as far as the messages of sessions need it.
 *
 * The library for protocol buffers interprets a description of each message, which takes microseconds. A session carries
 * hundreds of thousands of operations a second, so its messages are written by hand. test/protocol compares the two.
 */

const VARINT = 0;
const BYTES = 2;

const TWO_32 = 0x1_0000_0000;

/** Texts up to this length are copied by a loop, which is faster than a call into Node. */
const SHORT_TEXT = 48;

const FIRST_SIZE = 4_096;

export class Writer {
  #bytes = Buffer.allocUnsafe(FIRST_SIZE);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Returns the message. The writer must not be used after that. */
  finish(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Leaves room for bytes that are written later. */
  skip(bytes: number): void {
    this.#reserve(bytes);
    this.#length += bytes;
  }

  /** A whole number of up to 32 bits. Protocol buffers omit 0. */
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

  /** A text. Protocol buffers omit empty ones. */
  text(field: number, value: string): void {
    if (value.length > 0) this.element(field, value);
  }

  /** An element of a list of texts, which is written even if it is empty. */
  element(field: number, value: string): void {
    this.#reserve(10 + 3 * value.length);
    this.#tag(field, BYTES);
    if (value.length > SHORT_TEXT || !this.#shortText(value)) {
      const size = Buffer.byteLength(value);
      this.#varint(size);
      this.#length += this.#bytes.write(value, this.#length);
    }
  }

  /** An encoded message. */
  bytes(field: number, value: Uint8Array): void {
    this.#reserve(10 + value.length);
    this.#tag(field, BYTES);
    this.#varint(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
  }

  /** A packed list of booleans. */
  bools(field: number, values: readonly boolean[]): void {
    if (values.length === 0) return;
    this.#reserve(10 + values.length);
    this.#tag(field, BYTES);
    this.#varint(values.length);
    for (const value of values) this.#bytes[this.#length++] = value ? 1 : 0;
  }

  /** Begins a nested message. Returns the argument for {@link end}. */
  begin(field: number): number {
    this.#reserve(10);
    this.#tag(field, BYTES);
    // Room for a length of one byte. `end` makes more room for a longer message.
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

  /** Copies the text if it is ASCII. Returns whether it was. */
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
