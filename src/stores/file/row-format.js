/** How a record stands in the database: its version, until when it is kept, whether it is idle, and its text. */

/** What stands before the text: two numbers of eight bytes, and a byte. */
export const HEAD_BYTES = 17;

/**
 * Writes what stands before the text of a row that begins at a place.
 *
 * @param {DataView} view
 * @param {number} at
 * @param {number} version
 * @param {number} keepUntilMs
 * @param {boolean} idle
 */
export function writeHead(view, at, version, keepUntilMs, idle) {
  writeVersion(view, at, version);
  view.setFloat64(at + 8, keepUntilMs);
  view.setUint8(at + 16, idle ? 1 : 0);
}

/**
 * @param {DataView} view
 * @param {number} at Where the row begins.
 * @param {number} version
 */
export function writeVersion(view, at, version) {
  view.setFloat64(at, version);
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
 * @param {Uint8Array} key
 */
export function endKey(atMs, key) {
  const entry = Buffer.allocUnsafe(8 + key.length);
  entry.writeDoubleBE(atMs, 0);
  entry.set(key, 8);
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

/** What the key of an owner begins with in the log and in `locks.mdb`, where it stands among those of records: none of them has a zero. */
const OWNER_MARK = 0;

/** @param {Uint8Array} owner */
export function ownerKey(owner) {
  return Buffer.concat([Buffer.of(OWNER_MARK), owner]);
}

/**
 * Whose key it is, where it is that of an owner.
 *
 * @param {Buffer} key
 */
export function ownerOf(key) {
  return key[0] === OWNER_MARK ? key.subarray(1) : undefined;
}
