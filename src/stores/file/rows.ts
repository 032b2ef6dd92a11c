/** The bytes of a row, and of the entry that orders rows by the time at which they may be removed. */

/** Version and time as doubles, and one byte: 1 for an idle record. The text follows. */
const HEAD_BYTES = 17;

export interface NewRow {
  readonly version: number;
  readonly keepUntilMs: number;
  readonly idle: boolean;
  readonly text: string;
}

/** `lmdb` copies a row before it returns, so all rows are written to the same buffer. */
let scratch = Buffer.allocUnsafe(65_536);

/** The bytes of a row, valid until the next call. */
export function rowBytes({ version, keepUntilMs, idle, text }: NewRow): Buffer {
  // A character of JavaScript takes at most three bytes.
  const most = HEAD_BYTES + 3 * text.length;
  if (scratch.length < most) scratch = Buffer.allocUnsafe(2 * most);
  scratch.writeDoubleBE(version, 0);
  scratch.writeDoubleBE(keepUntilMs, 8);
  scratch[16] = idle ? 1 : 0;
  return scratch.subarray(0, HEAD_BYTES + scratch.write(text, HEAD_BYTES));
}

export function versionOf(row: Buffer): number {
  return row.readDoubleBE(0);
}

export function keptUntilMs(row: Buffer): number {
  return row.readDoubleBE(8);
}

export function isIdle(row: Buffer): boolean {
  return row[16] === 1;
}

export function textOf(row: Buffer): string {
  return row.toString("utf8", HEAD_BYTES);
}

/** The key of an entry in the order of ends. Positive doubles in big-endian order sort by their value. */
export function endKey(atMs: number, key: Uint8Array): Buffer {
  const entry = Buffer.allocUnsafe(8 + key.length);
  entry.writeDoubleBE(atMs, 0);
  entry.set(key, 8);
  return entry;
}

export function keyOf(entry: Buffer): Buffer {
  return entry.subarray(8);
}
