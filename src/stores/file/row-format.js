/** How a record stands in the database: its version, until when it is kept, whether it is idle, and its text. */

/** What stands before the text: two numbers of eight bytes, and a byte. */
const HEAD_BYTES = 17;

/**
 * @param {number} version
 * @param {number} keepUntilMs
 * @param {boolean} idle
 * @param {string} text
 */
export function encodeRow(version, keepUntilMs, idle, text) {
  const row = Buffer.allocUnsafe(HEAD_BYTES + Buffer.byteLength(text));
  row.writeDoubleBE(version, 0);
  row.writeDoubleBE(keepUntilMs, 8);
  row.writeUInt8(idle ? 1 : 0, 16);
  row.write(text, HEAD_BYTES);
  return row;
}

/** @param {Buffer} row */
export function versionOf(row) {
  return row.readDoubleBE(0);
}

/** @param {Buffer} row */
export function keptUntilMs(row) {
  return row.readDoubleBE(8);
}

/** @param {Buffer} row */
export function textOf(row) {
  return row.toString("utf8", HEAD_BYTES);
}

/**
 * The key of an entry that says when a record is to be looked at: entries are in order of time. As eight bytes that begin
 * with the highest, positive numbers are.
 *
 * @param {number} atMs
 * @param {Buffer} key
 */
export function endKey(atMs, key) {
  const entry = Buffer.allocUnsafe(8 + key.length);
  entry.writeDoubleBE(atMs, 0);
  key.copy(entry, 8);
  return entry;
}

/** @param {Buffer} entry */
export function endMsOf(entry) {
  return entry.readDoubleBE(0);
}

/** @param {Buffer} entry */
export function keyOf(entry) {
  return entry.subarray(8);
}
