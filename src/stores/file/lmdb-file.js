/**
 * A file of LMDB that several processes write to. Everything happens in write transactions, also what only reads: of all processes,
 * one at a time has one. So no snapshot is ever left behind by a process that was killed.
 */
import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { codedError } from "./failures.js";
import { checkBase, flushAnew, grow, STALE_BASE } from "./file-heads.js";

/**
 * @typedef {import("lmdb").RootDatabase<Buffer, Buffer>} Root
 * @typedef {import("lmdb").Database<Buffer, Buffer>} Table
 */

/** Address space, of which only what is used takes room. It grows by itself where it is not enough. */
const MAP_BYTES = 1_073_741_824;
/** Processes that can say that they have it open. */
const MAX_READERS = 1_024;
/** Pages that a change writes in another place, at most: a few in each of two trees. */
const CHANGE_PAGES = 4;
/** Further ones of a transaction: what the folder knows of itself, and which pages are free. */
const OTHER_PAGES = 16;
/** So many times its bytes is what a row takes at most: what needs a page of its own may fill less than half of it. */
const SLACK = 3;

export class LmdbFile {
  /** @type {Root} */
  root;
  /** The file, for what LMDB offers no call for. @type {number} */
  #descriptor;
  /** Whether a commit waits until it is on the disk. */
  #isDurable;
  /** What the present transaction began from. @type {import("./file-heads.js").Heads} */
  #heads = { commit: 0, lastPage: 0, pageBytes: 0 };
  /** How many changes the present transaction has, and how many bytes they write. */
  #changes = 0;
  #bytes = 0;
  /** How large the file is, or was. It never shrinks. */
  #fileBytes = 0;

  /**
   * @param {Root} root
   * @param {number} descriptor
   * @param {boolean} isDurable
   */
  constructor(root, descriptor, isDurable) {
    this.root = root;
    this.#descriptor = descriptor;
    this.#isDurable = isDurable;
  }

  /**
   * Opens the file, which is made where there is none. What it is used for comes after prepare().
   *
   * @param {typeof import("lmdb")} lmdb
   * @param {string} path
   * @param {{ isDurable: boolean }} options Whether a commit waits until it is on the disk.
   * @returns {LmdbFile}
   */
  static open({ open }, path, { isDurable }) {
    const descriptor = openSync(path, constants.O_RDWR | constants.O_CREAT);
    try {
      const sizes = { mapSize: MAP_BYTES, maxDbs: 3, maxReaders: MAX_READERS };
      /** @type {Root} */
      const root = open({ path, ...tableOptions, ...sizes, overlappingSync: false, noSync: !isDurable });
      return new LmdbFile(root, descriptor, isDurable);
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
  }

  /** Makes sure of what others may have left, and of room for what is made first. */
  prepare() {
    this.transact(() => {
      if (this.#isDurable) this.flushAnew();
      this.makeRoom(0);
    });
  }

  /**
   * @param {string} name
   * @returns {Table}
   */
  table(name) {
    return this.root.openDB(name, tableOptions);
  }

  /**
   * Runs all of the work in one transaction. Where the work or the transaction fails, nothing has happened.
   *
   * @template T
   * @param {() => T} work
   * @returns {T}
   */
  transact(work) {
    return this.root.transactionSync(() => {
      this.#heads = checkBase(this.root, this.#descriptor);
      // Somebody has removed it, and whoever comes next makes another one.
      if (fstatSync(this.#descriptor).nlink === 0) throw codedError(STALE_BASE, "the file was removed");
      this.#changes = 0;
      this.#bytes = 0;
      return work();
    });
  }

  /**
   * Sees to it that there is room for further changes of the present transaction, before they are made. See {@link grow}.
   *
   * @param {number} bytes What they write.
   * @param {number} changes
   */
  makeRoom(bytes, changes = 1) {
    this.#changes += changes;
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

  /** In a transaction: whether nobody has written to the file so far. */
  get isBlank() {
    return this.#heads.commit === 0;
  }

  /** In a transaction: whether somebody has it open who has said so. Those that are gone do not count. */
  get isInUse() {
    this.root.readerCheck();
    return /^\s*\d+ /m.test(this.root.readerList());
  }

  /**
   * In a transaction: says that this process has it open, until it is closed. LMDB keeps a list of those who read, and forgets it when nobody has
   * the file open. Who is not in it may meet the file removed, and comes again.
   */
  sayInUse() {
    // Another container may have a process with the same number. LMDB would wait for that one to go.
    if (new RegExp(`^\\s*${process.pid} `, "m").test(this.root.readerList())) return;
    try {
      this.root.useReadTransaction().done();
    } catch {
      // The list is full.
    }
  }

  /** In a transaction: makes up for a flush that failed, whoever made it. */
  flushAnew() {
    flushAnew(this.#descriptor);
  }

  async close() {
    try {
      closeSync(this.#descriptor);
    } finally {
      await this.root.close();
    }
  }
}

/** @type {{ encoding: "binary", keyEncoding: "binary", cache: false }} */
const tableOptions = { encoding: "binary", keyEncoding: "binary", cache: false };
