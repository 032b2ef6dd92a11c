/**
 * The files of a folder.
 *
 * What is true now is in `live.mdb`, a file of LMDB that all processes of the machine share. It is on no disk for certain, so it counts only as long
 * as somebody has it open: whoever comes when nobody has makes it anew. It has four tables:
 *
 * - the main one: what the folder knows of itself, under one key;
 * - `records`: a row for each key;
 * - `ends`: one entry for each record, in order of the time at which to look whether it is still of use;
 * - `owners`: the socket through which each owner can be woken.
 *
 * Every change goes into the log (log.js) in the same transaction, and is there for good after flush(), by whichever process. A log that
 * has become long is put into `locks.mdb` (base.js), and another one is begun.
 */
import { join } from "node:path";
import { Base } from "./base.js";
import { packChange } from "./change-format.js";
import { alignedTime, readMonotonicMs, resumedTime, thisMachine, timeOf } from "./disk-clock.js";
import { codedError, failureOf, isLackOfRoom } from "./failures.js";
import { STALE_BASE } from "./file-heads.js";
import { checkFile, removeUnbegun } from "./folder-checks.js";
import { hasClaimsAt, STATE_KEY, timeBytes } from "./folder-state.js";
import { LIVE_NAME, removeUnreadable, removeUnused } from "./live-file.js";
import { momentOf, readLiveState, writeLiveState } from "./live-state.js";
import { LmdbFile } from "./lmdb-file.js";
import { LOG_BYTES, Log, LogEntry } from "./log.js";
import { endKey, keptUntilMs, ownerOf, textOf } from "./row-format.js";

/**
 * @typedef {import("./lmdb-file.js").Table} Table
 * @typedef {import("./live-state.js").LiveState} LiveState
 * @typedef {import("./disk-clock.js").MachineTime} MachineTime
 *
 * @typedef {object} OpenOptions
 * @property {MachineTime} [machine]
 * @property {number} [logBytes] How long a log becomes before it is put into `locks.mdb`.
 * @property {<T>(work: () => T) => T} [undisturbed] Does what has transactions in it.
 */

/** What an entry of `ends` says besides its key. */
export const NOTHING = Buffer.from([0]);
/** What stands for a key where an entry of the log has the time. */
const NO_KEY = Buffer.alloc(0);
/** How long to leave a log alone that could not be put into `locks.mdb`. */
const REST_MS = 1_000;

export class Folder {
  /** All that has to be closed. @type {readonly (LmdbFile | Log)[]} */
  #files;
  /** @type {LmdbFile} */
  #live;
  /** @type {Base} */
  #base;
  /** @type {Log} */
  #log;
  /** How long a log becomes. */
  #logBytes;
  /** @type {Table} */
  records;
  /** @type {Table} */
  ends;
  /** @type {Table} */
  owners;
  #entry = new LogEntry();
  /** What the folder knows of itself, in the present transaction. @type {LiveState} */
  #state;
  #changed = false;
  /** The latest moment of the folder that is known to be on the disk, and the log that it is in. */
  #flushed = "";
  #flushedGeneration = 0;
  /** The time of the folder that is known to be on the disk. A machine that loses its power goes on from there, or later. */
  keptMs = 0;
  /** How long the latest commit took. */
  #commitMs = 0;
  /** How long the latest change took, with the disk, in milliseconds. */
  diskMs = 0;
  #restUntilMs = Number.NEGATIVE_INFINITY;

  /**
   * @param {LmdbFile} live
   * @param {LmdbFile} baseFile
   * @param {Log} log
   * @param {{ machine: MachineTime, logBytes: number }} options
   */
  constructor(live, baseFile, log, { machine, logBytes }) {
    this.#files = [live, baseFile, log];
    this.#live = live;
    this.#base = Base.of(baseFile, machine);
    this.#log = log;
    this.#logBytes = logBytes;
    this.records = live.table("records");
    this.ends = live.table("ends");
    this.owners = live.table("owners");
    this.#state = this.#arrive(machine);
  }

  /**
   * @param {typeof import("lmdb")} lmdb
   * @param {string} folder
   * @param {OpenOptions} options
   * @returns {Promise<Folder>}
   */
  static async open(lmdb, folder, options = {}) {
    const { machine = thisMachine(), logBytes = LOG_BYTES, undisturbed = (work) => work() } = options;
    /** @type {(LmdbFile | Log)[]} */
    const opened = [];
    const openFile = (/** @type {string} */ name, /** @type {boolean} */ isDurable) => {
      const path = join(folder, name);
      checkFile(folder, path);
      const file = LmdbFile.open(lmdb, path, { isDurable });
      opened.unshift(file);
      return file;
    };
    try {
      removeUnbegun(folder);
      // Whoever may not use it is told so before anything is removed.
      checkFile(folder, join(folder, "locks.mdb"));
      removeUnreadable(join(folder, LIVE_NAME));
      undisturbed(() => removeUnused(openFile(LIVE_NAME, false), join(folder, LIVE_NAME)));
      await opened.shift()?.close();
      return undisturbed(() => {
        const baseFile = openFile("locks.mdb", true);
        baseFile.prepare();
        const live = openFile(LIVE_NAME, false);
        live.transact(() => {
          if (!live.isBlank && !live.isInUse) throw codedError(STALE_BASE, "others have left it meanwhile");
          live.makeRoom(0);
        });
        const log = new Log(folder);
        opened.unshift(log);
        const files = new Folder(live, baseFile, log, { machine, logBytes });
        // Somebody may have failed to put the end of the log on the disk, and be gone.
        files.#fold(1);
        files.#flushLogs();
        return files;
      });
    } catch (error) {
      for (const each of opened) await each.close();
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
    const before = this.#state;
    try {
      return this.#transact(work);
    } catch (error) {
      this.#state = before;
      throw error;
    }
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
      this.#flushLogs();
    } catch {
      this.mend();
    }
    this.diskMs = this.#commitMs + performance.now() - beganMs;
  }

  /** Makes up for a flush that failed, whoever made it. Throws where the disk fails again; then the files cannot be used further. */
  mend() {
    try {
      // All is in `locks.mdb` then, and what was not written of the log is not needed.
      this.#fold(1);
      this.#flushLogs();
    } catch (error) {
      throw codedError("FLUSH_FAILED", failureOf(error).message);
    }
  }

  /** Puts the log into `locks.mdb` where it has become long. Nobody waits for that. Throws where the files cannot be used further. */
  tidy() {
    if (this.#state.end < this.#logBytes || performance.now() < this.#restUntilMs) return;
    this.makeRoom(this.#logBytes);
  }

  /**
   * Puts a log into `locks.mdb` that is at least that long, so that its room can be used again.
   *
   * @param {number} leastBytes
   */
  makeRoom(leastBytes = 1) {
    try {
      this.#fold(leastBytes);
    } catch (error) {
      if (!isLackOfRoom(failureOf(error))) throw error;
      // Meanwhile the log grows, as long as it can.
      this.#restUntilMs = performance.now() + REST_MS;
    }
  }

  nowMs() {
    return timeOf(this.#state, readMonotonicMs());
  }

  /** A version that no record of the folder has had, so that none comes back with a key that was removed. */
  nextVersion() {
    return ++this.#state.versions;
  }

  /**
   * Sees to it that there is room for one more change of the present transaction, before it is made.
   *
   * @param {number} bytes What it writes.
   */
  expect(bytes) {
    this.#live.makeRoom(bytes);
  }

  /**
   * These changes were made in the present transaction.
   *
   * @param {Uint8Array} changes As change-format.js has them.
   */
  note(changes) {
    this.#changed = true;
    this.#entry.add(changes);
  }

  async close() {
    for (const file of this.#files) await file.close();
  }

  /**
   * The state of the folder. Where nobody has it, all is gathered from what the disk has.
   *
   * @param {MachineTime} machine
   * @returns {LiveState}
   */
  #arrive(machine) {
    const { root } = this.#live;
    const { state, isResumed } = this.#live.transact(() => {
      const isGathered = root.get(STATE_KEY) === undefined;
      if (isGathered) this.#gather();
      const before = readLiveState(root);
      // Whoever has it open is on this machine, so it was not restarted meanwhile.
      const time = isGathered ? resumedTime(before, machine) : before;
      const state = { ...before, ...time };
      if (time !== before) writeLiveState(root, state);
      this.#live.sayInUse();
      return { state, isResumed: time !== before };
    });
    if (!isResumed) return state;
    this.#state = state;
    this.transact(() => this.#align(machine));
    return this.#state;
  }

  #gather() {
    this.#log.makeRoom();
    this.#base.foldAll(this.#log);
    this.#base.read(
      (state) => {
        const { generation, sum, lastMs } = state;
        const place = { end: 0, loggedMs: lastMs, foldedTo: generation, formerEnd: 0, formerSum: sum };
        /** @type {LiveState} */
        const live = { ...state, ...place };
        writeLiveState(this.#live.root, live);
      },
      (key, row) => {
        this.#live.makeRoom(row.length + 2 * key.length);
        const owner = ownerOf(key);
        if (owner !== undefined) return void this.owners.putSync(owner, row);
        this.records.putSync(key, row);
        this.ends.putSync(endKey(keptUntilMs(row), key), NOTHING);
      },
    );
  }

  /**
   * @template T
   * @param {() => T} work
   * @returns {T}
   */
  #transact(work) {
    let doneMs = 0;
    const result = this.#live.transact(() => {
      this.#state = readLiveState(this.#live.root);
      this.#changed = false;
      this.#entry.begin();
      const result = work();
      if (this.#changed) this.#writeLog();
      doneMs = performance.now();
      return result;
    });
    if (this.#changed) {
      this.#commitMs = performance.now() - doneMs;
      this.diskMs = this.#commitMs;
    }
    return result;
  }

  /** Adds the present transaction to the log. */
  #writeLog() {
    const lastMonotonicMs = readMonotonicMs();
    const lastMs = timeOf(this.#state, lastMonotonicMs);
    const { boot, offsetMs, generation, sum: sumBefore, end } = this.#state;
    this.#entry.add(packChange(NO_KEY, timeBytes({ boot, offsetMs, lastMs, lastMonotonicMs })));
    const { bytes, sum } = this.#entry.end(generation, sumBefore);
    const place = { sum, end: end + bytes.length, loggedMs: lastMs };
    this.#state = { ...this.#state, lastMs, lastMonotonicMs, ...place };
    writeLiveState(this.#live.root, this.#state);
    // Last: what is in the log may come about.
    this.#log.write(generation, end, bytes);
  }

  #flushLogs() {
    const { generation, loggedMs } = this.#state;
    // Of what is in a log nobody is told before all of the one before is on the disk. Also, where the system failed to write to that one, this
    // process may not have been told yet.
    if (this.#flushedGeneration !== generation) this.#log.flush(generation - 1);
    this.#log.flush(generation);
    this.#flushedGeneration = generation;
    this.#flushed = momentOf(this.#state);
    this.keptMs = loggedMs;
  }

  /**
   * Puts all into `locks.mdb` that was changed before; what was changed last only if the log has at least so many bytes.
   *
   * @param {number} leastBytes
   */
  #fold(leastBytes) {
    const first = this.#foldFormer();
    if (first.end < leastBytes) return;
    this.#endLog(first.generation);
    // Others may end logs as well; then they have seen to it before.
    while (this.#foldFormer().generation === first.generation) this.#endLog(first.generation);
  }

  /**
   * Puts the log before the present one into `locks.mdb`, if it is not there.
   *
   * @returns {LiveState} What was true when that was looked at.
   */
  #foldFormer() {
    const { root } = this.#live;
    const state = this.#live.transact(() => readLiveState(root));
    const { generation, foldedTo, formerEnd, formerSum } = state;
    if (foldedTo === generation) return state;
    this.#base.fold(this.#log, generation - 1, { end: formerEnd, sum: formerSum });
    this.#live.transact(() => {
      this.#live.makeRoom(0);
      const now = readLiveState(root);
      if (now.generation === generation) writeLiveState(root, { ...now, foldedTo: generation });
    });
    return state;
  }

  /**
   * Ends the log of that generation, and begins the next, in the other file: what that had is in `locks.mdb`.
   *
   * @param {number} generation
   */
  #endLog(generation) {
    const { root } = this.#live;
    this.#state = this.#live.transact(() => {
      const state = readLiveState(root);
      if (state.generation !== generation) return this.#state;
      const { sum, end } = state;
      this.#live.makeRoom(0);
      this.#log.end(generation, end);
      const next = { ...state, generation: generation + 1, end: 0, formerEnd: end, formerSum: sum };
      writeLiveState(root, next);
      return next;
    });
  }

  /**
   * After a restart of the machine: catches up with the wall clock where nobody has a claim. A claim may be somebody's on another
   * machine, whose clock went on; nothing here can tell for how long.
   *
   * @param {MachineTime} machine
   */
  #align(machine) {
    const nowMs = this.nowMs();
    for (const { value } of this.records.getRange({})) {
      if (keptUntilMs(value) > nowMs && hasClaimsAt(textOf(value), nowMs)) return;
    }
    this.#live.makeRoom(0);
    this.#state = { ...this.#state, ...alignedTime(this.#state, machine) };
    this.#changed = true;
  }
}
