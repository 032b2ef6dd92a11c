/**
 * The tables of `live.mdb`, all of it in its transactions:
 *
 * - `records`: a row for each key;
 * - `ends`: one entry for each record, in order of the time at which to look whether it is still of use;
 * - `owners`: the socket through which each owner can be woken.
 *
 * In front of them are the rows that this process has changed lately. They are put into the tables when somebody else needs them there, or when they
 * have become many: a row that was changed a hundred times by then is put there once. Until then the log has them, for everybody (folder.js).
 */
import { endKey, keptUntilMs, ownerOf } from "./row-format.js";

/**
 * @typedef {import("./lmdb-file.js").LmdbFile} LmdbFile
 * @typedef {import("./lmdb-file.js").Table} Table
 * @typedef {import("./change-format.js").ChangeReader} ChangeReader
 *
 * @typedef {object} RecentRow
 * @property {Buffer} row
 * @property {boolean} isNew Whether the tables have no row of that key.
 */

/** What an entry of `ends` says besides its key. */
const NOTHING = Buffer.from([0]);

export class Tables {
  /** @type {LmdbFile} */
  #live;
  /** @type {Table} */
  #records;
  /** @type {Table} */
  #ends;
  /** @type {Table} */
  owners;
  /** By the bytes of the key as characters. @type {Map<string, RecentRow>} */
  #recent = new Map();
  /** What these take in the tables. */
  #recentBytes = 0;

  /** @param {LmdbFile} live */
  constructor(live) {
    this.#live = live;
    this.#records = live.table("records");
    this.#ends = live.table("ends");
    this.owners = live.table("owners");
  }

  /**
   * The row of a key as it is now. It is good until the next one is asked for.
   *
   * @param {ChangeReader} change
   * @returns {Buffer | undefined}
   */
  find(change) {
    return this.#recent.get(change.name)?.row ?? this.#records.getBinaryFast(change.key);
  }

  /**
   * The same, to be kept.
   *
   * @param {Buffer} key
   * @returns {Buffer | undefined}
   */
  get(key) {
    return this.#recent.get(key.toString("latin1"))?.row ?? this.#records.get(key);
  }

  /**
   * Sees to it that there is room for what one more change of the present transaction writes, before it is made.
   *
   * @param {number} bytes
   */
  expect(bytes) {
    this.#live.makeRoom(bytes);
  }

  /**
   * @param {ChangeReader} change
   * @param {Buffer} row Nobody changes its bytes any more.
   * @param {boolean} isNew Whether there is no row of that key.
   */
  set(change, row, isNew) {
    const { name } = change;
    const before = this.#recent.get(name);
    if (before === undefined) {
      const bytes = row.length + 2 * name.length;
      this.expect(bytes);
      this.#recent.set(name, { row, isNew });
      this.#recentBytes += bytes;
      return;
    }
    const more = row.length - before.row.length;
    if (more > 0) this.expect(more);
    this.#recentBytes += more;
    before.row = row;
  }

  /** Whether all is in the tables. */
  get areSettled() {
    return this.#recent.size === 0;
  }

  /** Puts all into the tables. There is room for it: carryOn() has seen to that. */
  settle() {
    for (const [name, { row, isNew }] of this.#recent) this.#put(Buffer.from(name, "latin1"), row, isNew);
    this.forget();
  }

  /** What was changed lately is to be found in the log, or did not come about. */
  forget() {
    this.#recent.clear();
    this.#recentBytes = 0;
  }

  /** For a transaction that goes on with what was changed lately: there is to be room for that too, as it may be put into the tables. */
  carryOn() {
    this.#live.makeRoom(this.#recentBytes, this.#recent.size);
  }

  /**
   * Makes a change that the log or `locks.mdb` has.
   *
   * @param {Buffer} key
   * @param {Buffer} row Without bytes, the record was removed.
   */
  make(key, row) {
    this.expect(row.length + 2 * key.length);
    const owner = ownerOf(key);
    if (owner !== undefined) {
      if (row.length > 0) this.owners.putSync(owner, row);
      else this.owners.removeSync(owner);
    } else if (row.length > 0) this.#put(key, row, !this.#records.doesExist(key));
    else this.#records.removeSync(key);
  }

  /**
   * Records in the order of their keys.
   *
   * @param {import("lmdb").RangeOptions} range
   */
  list(range = {}) {
    this.settle();
    return this.#records.getRange(range);
  }

  /**
   * The entries of `ends` that come first.
   *
   * @param {number} limit
   */
  firstEnds(limit) {
    this.settle();
    return [...this.#ends.getRange({ limit })];
  }

  /**
   * Looks at a record again when its time is up.
   *
   * @param {Buffer} entry That of `ends` which is there.
   * @param {Buffer} key
   * @param {Buffer} row
   */
  postpone(entry, key, row) {
    this.expect(entry.length);
    this.#ends.removeSync(entry);
    this.#ends.putSync(endKey(keptUntilMs(row), key), NOTHING);
  }

  /**
   * Removes a record.
   *
   * @param {Buffer} entry That of `ends`.
   * @param {Buffer} key
   */
  remove(entry, key) {
    this.expect(entry.length);
    this.#ends.removeSync(entry);
    this.#records.removeSync(key);
  }

  /**
   * @param {Buffer} key
   * @param {Buffer} row
   * @param {boolean} isNew
   */
  #put(key, row, isNew) {
    this.#records.putSync(key, row);
    // Later changes leave the entry where it is, and the sweep puts it right: most records change often before they end.
    if (isNew) this.#ends.putSync(endKey(keptUntilMs(row), key), NOTHING);
  }
}
