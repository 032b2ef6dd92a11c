const FIRST_BYTES = 1_024;

/**
 * Copies pieces into one block of memory, which doubles when it is full. Node keeps the whole 64 KiB that it has read at a time for as long
 * as one byte of them is kept, and 100 bytes more for each piece.
 */
export class GrowingBuffer {
  #block = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** How much memory it takes. */
  get capacity(): number {
    return this.#block.length;
  }

  /** What has been pushed. It stays as it is: later pieces are written behind it. */
  get bytes(): Buffer {
    return this.#block.subarray(0, this.#length);
  }

  push(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#block.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length, 2 * this.#block.length, FIRST_BYTES));
      this.#block.copy(larger, 0, 0, this.#length);
      this.#block = larger;
    }
    piece.copy(this.#block, this.#length);
    this.#length = length;
  }
}
