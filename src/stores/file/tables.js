/**
 * The tables of `live.mdb`, all of it in its transactions:
 *
 * - `records`: a row for each key;
 * - `ends`: one entry for each record, in order of the time at which to look whether it is still of use;
 * - `owners`: the socket through which each owner can be woken.
 *
 * In front of them are the rows that this process has changed lately. They are put into the tables when somebody else needs them there, or when they
 * have become many: a row that was changed a hundred times by then is put there once. Until then the log has them, for everybody (folder.js): those
 * rows, and nothing else that is not in the tables.
 */
import { failureOf, isLackOfRoom } from "./failures.js";
import { endKey, keptUntilMs, ownerOf, versionOf } from "./row-format.js";

/**
 * @typedef {import("./lmdb-file.js").LmdbFile} LmdbFile
 * @typedef {import("./lmdb-file.js").Table} Table
 * @typedef {import("./change-format.js").ChangeReader} ChangeReader
 */

/** What an entry of `ends` says besides its key. */
const NOTHING = Buffer.from([0]);
/** In a large folder, room for four pages is kept for each row in front: 4 MiB for these. */
const MOST_IN_FRONT = 256;
/** For whoever has to put rows into the tables that another process had in front: room for so many changes of their own, and a little more. */
const SPARE_CHANGES = 16;
const SPARE_BYTES = 65_536;

/** A row that is a part of a request. It is cut out where somebody looks at it: most are replaced before. */
class RecentRow {
  /** The request. @type {Buffer} */
  #bytes;
  #at;
  #end;
  version;
  /** Whether the tables have no row of that key. */
  isNew;

  /**
   * @param {ChangeReader} change
   * @param {number} version
   * @param {boolean} isNew
   */
  constructor({ bytes, rowAt, end }, version, isNew) {
    this.#bytes = bytes;
    this.#at = rowAt;
    this.#end = end;
    this.version = version;
    this.isNew = isNew;
  }

  /**
   * @param {ChangeReader} change
   * @param {number} version
   */
  replace({ bytes, rowAt, end }, version) {
    this.#bytes = bytes;
    this.#at = rowAt;
    this.#end = end;
    this.version = version;
  }

  get length() {
    return this.#end - this.#at;
  }

  get row() {
    return this.#bytes.subarray(this.#at, this.#end);
  }
}

export class Tables {
  /** @type {LmdbFile} */
  #live;
  /** @type {Table} */
  #records;
  /** @type {Table} */
  #ends;
  /** @type {Table} */
  #owners;
  /** By the bytes of the key as characters. @type {Map<string, RecentRow>} */
  #recent = new Map();
  /** What these take in the tables. */
  #recentBytes = 0;
  /** The requests that they are parts of stay in memory with them: how much that is, and the latest one. */
  #requestBytes = 0;
  /** @type {Buffer | undefined} */
  #latestRequest;
  /** Whether the tables have to be as they should in the present transaction: somebody looks at them, or changes what is never in front. */
  #areNeeded = false;

  /** @param {LmdbFile} live */
  constructor(live) {
    this.#live = live;
    this.#records = live.table("records");
    this.#ends = live.table("ends");
    this.#owners = live.table("owners");
  }

  /**
   * The version that a key has now; 0: there is no record.
   *
   * @param {ChangeReader} change
   */
  versionOf(change) {
    const recent = this.#recent.get(change.name);
    if (recent !== undefined) return recent.version;
    const row = this.#records.getBinaryFast(change.key);
    return row === undefined ? 0 : versionOf(row);
  }

  /**
   * The row of a key as it is now.
   *
   * @param {Buffer} key
   * @returns {Buffer | undefined}
   */
  get(key) {
    return this.#recent.get(key.toString("latin1"))?.row ?? this.#records.get(key);
  }

  /**
   * @param {ChangeReader} change Nobody changes its bytes any more.
   * @param {number} version What its row gets.
   * @param {boolean} isNew Whether there is no row of that key.
   */
  set(change, version, isNew) {
    change.setVersion(version);
    const { name, bytes, rowAt, end } = change;
    const before = this.#recent.get(name);
    const length = end - rowAt;
    const more = before === undefined ? length + 2 * name.length : length - before.length;
    if (more > 0) this.#live.makeRoom(more);
    this.#recentBytes += more;
    if (before === undefined) this.#recent.set(name, new RecentRow(change, version, isNew));
    else before.replace(change, version);
    if (bytes === this.#latestRequest) return;
    this.#latestRequest = bytes;
    this.#requestBytes += bytes.length;
  }

  /** Whether nothing is in front. */
  get areSettled() {
    return this.#recent.size === 0;
  }

  /** Whether what is in front has to be put into the tables with the present transaction. */
  get areNeeded() {
    return this.#areNeeded;
  }

  /**
   * Whether rows may stay in front. Whoever comes next puts them into the tables, and has to find room for that also where the disk is full
   * by then.
   *
   * @param {number} maxRequestBytes How much memory the requests may take that they are parts of.
   */
  mayStay(maxRequestBytes) {
    if (this.#areNeeded || this.#recent.size > MOST_IN_FRONT || this.#requestBytes > maxRequestBytes)
      return false;
    try {
      this.#live.makeRoom(SPARE_BYTES, SPARE_CHANGES);
      return true;
    } catch (error) {
      if (!isLackOfRoom(failureOf(error))) throw error;
      return false;
    }
  }

  /** Puts all into the tables. There is room for it: carryOn() and set() have seen to that. */
  settle() {
    for (const [name, recent] of this.#recent)
      this.#put(Buffer.from(name, "latin1"), recent.row, recent.isNew);
    this.#clear();
  }

  /** Begins a transaction, after others have changed something or one has failed: what was in front is to be found in the log, or did not come about. */
  forget() {
    this.#areNeeded = false;
    this.#clear();
  }

  /** Begins a transaction that goes on with what is in front, and may have to put that into the tables. */
  carryOn() {
    this.#areNeeded = false;
    if (!this.areSettled) this.#live.makeRoom(this.#recentBytes, this.#recent.size);
  }

  /**
   * Puts a row there that another process had in front, or that `locks.mdb` has.
   *
   * @param {Buffer} key
   * @param {Buffer} row
   * @param {boolean} isNew Whether there is no row of that key.
   */
  add(key, row, isNew = !this.#records.doesExist(key)) {
    this.#live.makeRoom(row.length + 2 * key.length);
    const owner = ownerOf(key);
    if (owner === undefined) this.#put(key, row, isNew);
    else this.#owners.putSync(owner, row);
  }

  /**
   * Records in the order of their keys.
   *
   * @param {import("lmdb").RangeOptions} range
   */
  list(range = {}) {
    this.#need();
    return this.#records.getRange(range);
  }

  /**
   * The entries of `ends` that come first.
   *
   * @param {number} limit
   */
  firstEnds(limit) {
    this.#need();
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
    this.#live.makeRoom(entry.length);
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
    this.#live.makeRoom(entry.length);
    this.#ends.removeSync(entry);
    this.#records.removeSync(key);
  }

  /**
   * @param {Buffer} owner
   * @returns {Buffer | undefined} Its socket.
   */
  socketOf(owner) {
    return this.#owners.get(owner);
  }

  /** All owners and their sockets. */
  listOwners() {
    return [...this.#owners.getRange({})];
  }

  /**
   * @param {Buffer} owner
   * @param {Buffer} socket
   */
  setSocket(owner, socket) {
    this.#need();
    this.#live.makeRoom(owner.length + socket.length);
    this.#owners.putSync(owner, socket);
  }

  /** @param {Buffer} owner */
  removeSocket(owner) {
    this.#need();
    this.#live.makeRoom(0);
    this.#owners.removeSync(owner);
  }

  #need() {
    this.#areNeeded = true;
    this.settle();
  }

  #clear() {
    this.#recent.clear();
    this.#recentBytes = 0;
    this.#requestBytes = 0;
    this.#latestRequest = undefined;
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
