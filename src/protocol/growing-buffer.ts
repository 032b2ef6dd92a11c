const FIRST_BYTES = 1_024;

/**
 * Copies pieces into one block, which doubles when it is full. Keeping the pieces instead would keep the 64 KiB that Node reads at
 * a time for each of them.
 */
export class GrowingBuffer {
  #block = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  get capacity(): number {
    return this.#block.length;
  }

  /** The pushed bytes. Later pieces do not change them. */
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
