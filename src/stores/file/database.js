/**
 * The files of a folder: an LMDB environment with four tables.
 *
 * - the main one: what the folder knows of itself, under one key, as JSON: its format, its time, its latest version;
 * - `records`: a row for each key;
 * - `ends`: one entry for each record, in order of the time at which to look whether it is still of use;
 * - `owners`: the socket through which each owner can be woken.
 *
 * Everything happens in write transactions, also what only reads: of all processes, one at a time has one. So no snapshot is ever
 * left behind by a process that was killed.
 *
 * A commit puts its data on the disk, and all that was committed before it. That it counts itself is on the disk with the next
 * one, or after flush(), by whichever process. Until then, a machine that loses power goes back to the commit before.
 */
import { closeSync, fdatasyncSync, openSync } from "node:fs";
import { ChangeReader, countChanges } from "./change-format.js";
import { alignedTime, readBoot, readMonotonicMs, timeOf } from "./disk-clock.js";
import { codedError, failureOf } from "./failures.js";
import { checkBase, flushAnew, grow } from "./file-heads.js";
import { arrive, hasClaimsAt, momentOf, readState, writeState } from "./folder-state.js";
import { endKey, endMsOf, keptUntilMs, keyOf, textOf, versionOf } from "./row-format.js";

/**
 * @typedef {import("lmdb").RootDatabase<Buffer, Buffer>} Root
 * @typedef {import("lmdb").Database<Buffer, Buffer>} Table
 * @typedef {import("./protocol.ts").Request} Request
 * @typedef {import("./protocol.ts").Reply} Reply
 * @typedef {import("./protocol.ts").ListRequest} ListRequest
 * @typedef {import("./protocol.ts").Row} Row
 * @typedef {import("./protocol.ts").Outcome} Outcome
 * @typedef {import("./protocol.ts").SwapReply} SwapReply
 * @typedef {import("./protocol.ts").SwapRequest} SwapRequest
 * @typedef {import("./folder-state.js").State} State
 */

const NOTHING = Buffer.from([0]);
/** Address space, of which only what is used takes room. It grows by itself where it is not enough. */
const MAP_BYTES = 1_073_741_824;
/** Pages that a change writes in another place, at most: a few in each of two trees. */
const CHANGE_PAGES = 4;
/** Further ones of a transaction: what the folder knows of itself, and which pages are free. */
const OTHER_PAGES = 16;
/** So many times its bytes is what a row takes at most: what needs a page of its own may fill less than half of it. */
const SLACK = 3;
/** Entries that one sweep looks at, so that it holds up nobody for long. */
const LOOKED_AT_ONCE = 4_000;

export class Database {
  /** @type {Root} */
  #root;
  /** @type {Table} */
  #records;
  /** @type {Table} */
  #ends;
  /** @type {Table} */
  #owners;
  /** What the folder knows of itself, in the present transaction. @type {State} */
  #state;
  #changed = false;
  /** How many changes the present transaction has, and how many bytes they write. */
  #changes = 0;
  #bytes = 0;
  /** What the present transaction began from. @type {import("./file-heads.js").Heads} */
  #heads = { commit: 0, lastPage: 0, pageBytes: 0 };
  /** How large the file is, or was. It never shrinks. */
  #fileBytes = 0;
  /** The file, for what LMDB offers no call for. @type {number} */
  #descriptor;
  /** The latest moment of the folder that is known to be on the disk. */
  #flushed = "";
  /** The time of the folder before the latest transaction that changed it. A machine that loses its power goes on from there, or later. */
  keptMs = 0;
  /** How long the latest commit took. */
  #commitMs = 0;
  /** How long the disk took for the latest change, in milliseconds. */
  diskMs = 0;

  /**
   * @param {Root} root
   * @param {State} state
   * @param {number} descriptor
   */
  constructor(root, state, descriptor) {
    this.#root = root;
    this.#descriptor = descriptor;
    this.#state = state;
    this.#records = root.openDB("records", tableOptions);
    this.#ends = root.openDB("ends", tableOptions);
    this.#owners = root.openDB("owners", tableOptions);
  }

  /**
   * @param {typeof import("lmdb")} lmdb
   * @param {string} path
   * @param {number} wallMs
   * @returns {Promise<Database>}
   */
  static async open({ open }, path, wallMs) {
    /** @type {Root} */
    const root = open({
      path,
      ...tableOptions,
      mapSize: MAP_BYTES,
      maxDbs: 3,
      overlappingSync: false,
      noMetaSync: true,
    });
    /** @type {number | undefined} */
    let descriptor;
    try {
      descriptor = openSync(path, "r+");
      const file = descriptor;
      const machine = { boot: readBoot(), monotonicMs: readMonotonicMs(), wallMs };
      const { state, isResumed } = root.transactionSync(() => {
        const { lastPage, pageBytes } = checkBase(root, file);
        flushAnew(file);
        grow(file, (lastPage + 1 + CHANGE_PAGES + OTHER_PAGES) * pageBytes);
        return arrive(root, machine);
      });
      const database = new Database(root, state, descriptor);
      if (isResumed) database.transact(() => database.#align(machine));
      return database;
    } catch (error) {
      if (descriptor !== undefined) closeSync(descriptor);
      await root.close();
      throw error;
    }
  }

  /**
   * Runs all of the work in one transaction. Where the work or the transaction fails, nothing has happened.
   *
   * @template T
   * @param {() => T} work
   * @returns {T}
   */
  transact(work) {
    let doneMs = 0;
    const result = this.#root.transactionSync(() => {
      this.#heads = checkBase(this.#root, this.#descriptor);
      this.#state = readState(this.#root);
      this.#changed = false;
      this.#changes = 0;
      this.#bytes = 0;
      const beforeMs = this.#state.lastMs;
      const result = work();
      if (this.#changed) {
        this.keptMs = beforeMs;
        const lastMonotonicMs = readMonotonicMs();
        const lastMs = timeOf(this.#state, lastMonotonicMs);
        this.#state = { ...this.#state, lastMs, lastMonotonicMs };
        writeState(this.#root, this.#state);
      }
      doneMs = performance.now();
      return result;
    });
    if (this.#changed) {
      this.#commitMs = performance.now() - doneMs;
      this.diskMs = this.#commitMs;
    }
    return result;
  }

  /** Whether all is on the disk that the latest transaction saw, of whichever process it was. */
  get isFlushed() {
    return this.#flushed === momentOf(this.#state);
  }

  /** Puts all on the disk that the latest transaction saw and did. */
  flush() {
    if (this.isFlushed) return;
    const beganMs = performance.now();
    try {
      fdatasyncSync(this.#descriptor);
    } catch {
      this.mend();
    }
    this.#flushed = momentOf(this.#state);
    this.diskMs = this.#commitMs + performance.now() - beganMs;
  }

  /** Makes up for a flush that failed, whoever made it. Throws where the disk fails again; then the files cannot be used further. */
  mend() {
    try {
      // Nobody else commits meanwhile.
      this.#root.transactionSync(() => {
        checkBase(this.#root, this.#descriptor);
        flushAnew(this.#descriptor);
      });
    } catch (error) {
      throw codedError("FLUSH_FAILED", failureOf(error).message);
    }
  }

  nowMs() {
    return timeOf(this.#state, readMonotonicMs());
  }

  /**
   * @param {Request} request
   * @returns {Reply}
   */
  answer(request) {
    switch (request.verb) {
      case "read":
        return { nowMs: this.nowMs(), rows: request.keys.map((key) => this.#row(Buffer.from(key))) };
      case "swap":
        return this.swap(request, 0, countChanges(request));
      case "list":
        return this.#list(request);
      case "sweep":
        return this.#sweep(request.limit);
      case "register":
        this.#makeRoom(request.owner.length + request.socket.length);
        this.#owners.putSync(Buffer.from(request.owner), Buffer.from(request.socket));
        return undefined;
      case "forget":
        this.#forget(request.socket, request.owner);
        return undefined;
      case "sockets":
        return {
          sockets: [...new Set(this.#entries(this.#owners, {}).map(({ value }) => value.toString()))],
        };
    }
  }

  /**
   * Makes the changes from one place up to another.
   *
   * @param {SwapRequest} request
   * @param {number} from
   * @param {number} to
   * @returns {SwapReply}
   */
  swap(request, from, to) {
    /** @type {Outcome[]} */
    const outcomes = [];
    // No other process has a transaction meanwhile, so all of this one is one moment.
    const nowMs = this.nowMs();
    const isTimely = nowMs >= request.earliestMs && nowMs <= request.latestMs;
    const changes = new ChangeReader(request, from);
    for (let place = from; place < to; place++) {
      changes.next();
      outcomes.push(this.#swapOne(changes, isTimely));
    }
    const sockets = request.owners.map((owner) => this.#owners.get(Buffer.from(owner))?.toString());
    return { nowMs, outcomes, sockets };
  }

  async close() {
    try {
      closeSync(this.#descriptor);
    } finally {
      await this.#root.close();
    }
  }

  /**
   * @param {ChangeReader} change
   * @param {boolean} isTimely
   * @returns {Outcome}
   */
  #swapOne(change, isTimely) {
    const { key } = change;
    const present = this.#records.getBinaryFast(key);
    const version = present === undefined ? 0 : versionOf(present);
    if (version !== change.expected) return { current: this.#row(key) };
    if (!change.writes) return "same";
    if (!isTimely) return "untimely";
    // A counter for all keys, so that a version does not come back with a key that was removed.
    const next = ++this.#state.versions;
    const row = change.row(next);
    this.#makeRoom(row.length + 2 * key.length);
    this.#changed = true;
    this.#records.putSync(key, row);
    // Later changes leave the entry where it is, and the sweep puts it right: most records change often before they end.
    if (version === 0) this.#ends.putSync(endKey(change.keepUntilMs, key), NOTHING);
    return next;
  }

  /**
   * @param {Buffer} key
   * @returns {Row | undefined}
   */
  #row(key) {
    const row = this.#records.get(key);
    return row === undefined ? undefined : { version: versionOf(row), text: textOf(row) };
  }

  /** @param {ListRequest} request */
  #list({ prefix, after, limit }) {
    const beginning = Buffer.from(prefix);
    // No key contains a zero, so this is just behind the key.
    const next = after === undefined ? beginning : Buffer.from(`${after}\0`);
    const start = Buffer.compare(next, beginning) < 0 ? beginning : next;
    const rows = [];
    for (const { key, value } of this.#entries(
      this.#records,
      start.length === 0 ? { limit } : { start, limit },
    )) {
      if (!key.subarray(0, beginning.length).equals(beginning)) break;
      rows.push({ key: key.toString(), text: textOf(value) });
    }
    return { nowMs: this.nowMs(), rows };
  }

  /**
   * Sees to it that there is room for one more change of the present transaction, before it is made. See {@link grow}.
   *
   * @param {number} bytes What it writes.
   */
  #makeRoom(bytes) {
    this.#changes++;
    this.#bytes += bytes;
    const { lastPage, pageBytes } = this.#heads;
    // No more can be written anew than there are.
    const rewritten = Math.min(CHANGE_PAGES * this.#changes, lastPage);
    // Where they were is listed as free, in eight bytes each, on pages that may be half empty and are written anew themselves.
    const listed = rewritten / 128;
    const added = (SLACK * this.#bytes) / pageBytes;
    const pages = lastPage + 1 + Math.ceil(rewritten + listed + added) + OTHER_PAGES;
    if (pages * pageBytes > this.#fileBytes) {
      this.#fileBytes = grow(this.#descriptor, pages * pageBytes);
    }
  }

  /** @param {number} limit */
  #sweep(limit) {
    const nowMs = this.nowMs();
    const due = this.#entries(this.#ends, { limit: LOOKED_AT_ONCE });
    let removed = 0;
    let looked = 0;
    for (const { key: entry } of due) {
      if (endMsOf(entry) >= nowMs || removed === limit) break;
      looked++;
      const key = keyOf(entry);
      const row = this.#records.get(key);
      this.#makeRoom(entry.length);
      this.#changed = true;
      this.#ends.removeSync(entry);
      if (row !== undefined && keptUntilMs(row) >= nowMs) {
        this.#ends.putSync(endKey(keptUntilMs(row), key), NOTHING);
      } else {
        this.#records.removeSync(key);
        removed++;
      }
    }
    return { removed, more: looked === LOOKED_AT_ONCE };
  }

  /**
   * @param {string} socket
   * @param {string | undefined} owner
   */
  #forget(socket, owner) {
    const rows =
      owner === undefined
        ? this.#entries(this.#owners, {})
        : [{ key: Buffer.from(owner), value: this.#owners.get(Buffer.from(owner)) }];
    for (const { key, value } of rows) {
      // Another store may have become the owner's since.
      if (value?.toString() !== socket) continue;
      this.#makeRoom(0);
      this.#owners.removeSync(key);
    }
  }

  /**
   * After a restart of the machine: catches up with the wall clock where nobody has a claim. A claim may be somebody's on another
   * machine, whose clock went on; nothing here can tell for how long.
   *
   * @param {import("./disk-clock.js").MachineTime} machine
   */
  #align(machine) {
    const nowMs = this.nowMs();
    for (const { value } of this.#records.getRange({})) {
      if (keptUntilMs(value) > nowMs && hasClaimsAt(textOf(value), nowMs)) return;
    }
    this.#makeRoom(0);
    const { format, versions } = this.#state;
    this.#state = { format, versions, ...alignedTime(this.#state, machine) };
    this.#changed = true;
  }

  /**
   * @param {Table} table
   * @param {import("lmdb").RangeOptions} range
   */
  #entries(table, range) {
    return [...table.getRange(range)];
  }
}

/** @type {{ encoding: "binary", keyEncoding: "binary", cache: false }} */
const tableOptions = { encoding: "binary", keyEncoding: "binary", cache: false };
