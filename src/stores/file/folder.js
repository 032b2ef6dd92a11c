/**
 * The files of a folder.
 *
 * What is true now is in `live.mdb`, a file of LMDB that all processes of the machine share. It is on no disk for certain, so it counts only as long
 * as somebody has it open: whoever comes when nobody has makes it anew. It has what the folder knows of itself, under one key, and
 * three tables (tables.js).
 *
 * Every change goes into the log (log.js) in the same transaction, and is there for good after flush(), by whichever process. A log that
 * has become long is put into `locks.mdb` (base.js), and another one is begun.
 *
 * A process that seems to be alone does not put each change into the tables at once. What `live.mdb` knows of itself says up to where the tables have
 * what the log has. Whoever finds that somebody else has changed something puts the rest there first, from the log.
 */
import { Base } from "./base.js";
import { packChange } from "./change-format.js";
import { alignedTime, readMonotonicMs, resumedTime, timeOf } from "./disk-clock.js";
import { codedError, failureOf, isLackOfRoom } from "./failures.js";
import { hasClaimsAt, STATE_KEY, timeBytes } from "./folder-state.js";
import { isAsSeen, isSameMoment, readLiveState, writeLiveState } from "./live-state.js";
import { changesIn, damagedLog, LogEntry } from "./log.js";
import { keptUntilMs, textOf } from "./row-format.js";
import { Tables } from "./tables.js";

/**
 * @typedef {import("./lmdb-file.js").LmdbFile} LmdbFile
 * @typedef {import("./log.js").Log} Log
 * @typedef {import("./live-state.js").LiveState} LiveState
 *
 * @typedef {object} FolderOptions
 * @property {import("./disk-clock.js").MachineTime} machine
 * @property {number} logBytes How long a log becomes before it is put into `locks.mdb`.
 * @property {number} [unsettledBytes] How much of it may not be in the tables, where nobody else seems to be there.
 * @property {number} [aloneAfter] After how many transactions in a row nobody else does.
 */

/** What stands for a key where an entry of the log has the time. */
const NO_KEY = Buffer.alloc(0);
/** After so many transactions in a row nobody else seems to be there. */
const ALONE_AFTER = 8;
/** So much of the log is not in the tables, at most: others have to read it. */
const UNSETTLED_BYTES = 262_144;
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
  /** How much of it may not be in the tables, and after how many transactions in a row. */
  #unsettledBytes;
  #aloneAfter;
  /** @type {Tables} */
  tables;
  #entry = new LogEntry();
  /** What the folder knows of itself, in the present transaction. @type {LiveState} */
  #state;
  #changed = false;
  /**
   * When the tables, and what was changed lately, are all that is true: where nobody else has changed anything since. Undefined: never.
   *
   * @type {LiveState | undefined}
   */
  #seen;
  /** How many transactions this process has made, and nobody else in between. */
  #inARow = 0;
  /** The latest moment of the folder that is known to be on the disk. */
  #flushed = { generation: 0, end: 0 };
  /** The time of the folder that is known to be on the disk. A machine that loses its power goes on from there, or later. */
  keptMs = 0;
  /** How long the latest commit took, and the latest change, with the disk, in milliseconds. */
  #commitMs = 0;
  diskMs = 0;
  #restUntilMs = Number.NEGATIVE_INFINITY;

  /**
   * @param {LmdbFile} live
   * @param {LmdbFile} baseFile
   * @param {Log} log
   * @param {FolderOptions} options
   */
  constructor(live, baseFile, log, options) {
    const { machine, logBytes, unsettledBytes = UNSETTLED_BYTES, aloneAfter = ALONE_AFTER } = options;
    this.#files = [live, baseFile, log];
    this.#live = live;
    this.#base = Base.of(baseFile, machine);
    this.#log = log;
    this.#logBytes = logBytes;
    this.#unsettledBytes = unsettledBytes;
    this.#aloneAfter = aloneAfter;
    this.tables = new Tables(live);
    this.#state = this.#arrive(machine);
  }

  /** For whoever has just opened the files: somebody may have failed to put the end of the log on the disk, and be gone. */
  begin() {
    this.#fold(1);
    this.#flushLogs();
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
    const result = this.#onward(() => {
      this.#changed = false;
      this.#entry.begin();
      const result = work();
      if (this.#changed) this.#writeLog();
      else if (this.tables.areNeeded) this.#saySettled();
      doneMs = performance.now();
      return result;
    });
    if (this.#changed) {
      this.#commitMs = performance.now() - doneMs;
      this.diskMs = this.#commitMs;
    }
    return result;
  }

  /** Whether no other process seems to use the folder. */
  get isAlone() {
    return this.#inARow >= this.#aloneAfter;
  }

  /** Whether all is on the disk that the latest transaction saw, of whichever process it was. */
  get isFlushed() {
    return isSameMoment(this.#flushed, this.#state);
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
   * @param {FolderOptions["machine"]} machine
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
        writeLiveState(this.#live.root, { ...state, ...place, settledEnd: 0, settledSum: sum });
      },
      (key, row) => this.tables.add(key, row, true),
    );
  }

  /**
   * Runs all of the work in one transaction of `live.mdb`, with the state of the folder as it is then. Where the work or the transaction
   * fails, nothing has happened, and of what was changed lately it is not known what came about.
   *
   * @template T
   * @param {() => T} work
   * @returns {T}
   */
  #onward(work) {
    const before = this.#state;
    try {
      const result = this.#live.transact(() => {
        this.#state = this.#caughtUp(readLiveState(this.#live.root));
        return work();
      });
      this.#seen = this.#state;
      return result;
    } catch (error) {
      this.#state = before;
      this.#seen = undefined;
      throw error;
    }
  }

  /**
   * Sees to it that the tables, and what was changed lately, are all that is true.
   *
   * @param {LiveState} state
   * @returns {LiveState}
   */
  #caughtUp(state) {
    if (this.#seen !== undefined && isAsSeen(this.#seen, state)) {
      this.#inARow++;
      this.tables.carryOn();
      return state;
    }
    this.#inARow = 0;
    this.tables.forget();
    const { generation, end, sum, settledEnd, settledSum } = state;
    if (settledEnd === end) return state;
    const missing = this.#log.read(generation, settledSum, { from: settledEnd, upTo: end });
    if (settledEnd + missing.end !== end || missing.sum !== sum) {
      throw damagedLog(generation, settledEnd + missing.end, end);
    }
    this.#live.makeRoom(0);
    for (const { key, row } of changesIn(missing)) this.tables.add(key, row);
    const settled = { ...state, settledEnd: end, settledSum: sum };
    writeLiveState(this.#live.root, settled);
    return settled;
  }

  /** The tables have all, though nothing was changed. */
  #saySettled() {
    const { end, sum, settledEnd } = this.#state;
    if (settledEnd === end) return;
    this.#state = { ...this.#state, settledEnd: end, settledSum: sum };
    writeLiveState(this.#live.root, this.#state);
  }

  /** Adds the present transaction to the log. */
  #writeLog() {
    const lastMonotonicMs = readMonotonicMs();
    const lastMs = timeOf(this.#state, lastMonotonicMs);
    const { boot, offsetMs, generation, sum: sumBefore, end } = this.#state;
    this.#entry.add(packChange(NO_KEY, timeBytes({ boot, offsetMs, lastMs, lastMonotonicMs })));
    const { bytes, sum } = this.#entry.end(generation, sumBefore);
    const newEnd = end + bytes.length;
    const isLittle = newEnd - this.#state.settledEnd <= this.#unsettledBytes;
    if (!this.isAlone || !isLittle || !this.tables.mayStay(this.#unsettledBytes)) this.tables.settle();
    // The present transaction has read it for itself.
    Object.assign(this.#state, { lastMs, lastMonotonicMs, sum, end: newEnd, loggedMs: lastMs });
    if (this.tables.areSettled) Object.assign(this.#state, { settledEnd: newEnd, settledSum: sum });
    writeLiveState(this.#live.root, this.#state);
    // Last: what is in the log may come about.
    this.#log.write(generation, end, bytes);
  }

  #flushLogs() {
    const { generation, end, loggedMs } = this.#state;
    // Of what is in a log nobody is told before all of the one before is on the disk. Also, where the system failed to write to that one, this
    // process may not have been told yet.
    if (this.#flushed.generation !== generation) this.#log.flush(generation - 1);
    this.#log.flush(generation);
    this.#flushed = { generation, end };
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
    this.#onward(() => {
      const { sum, end } = this.#state;
      if (this.#state.generation !== generation) return;
      this.#live.makeRoom(0);
      this.tables.settle();
      this.#log.end(generation, end);
      const place = { generation: generation + 1, end: 0, formerEnd: end, formerSum: sum };
      this.#state = { ...this.#state, ...place, settledEnd: 0, settledSum: sum };
      writeLiveState(this.#live.root, this.#state);
    });
  }

  /**
   * After a restart of the machine: catches up with the wall clock where nobody has a claim. A claim may be somebody's on another
   * machine, whose clock went on; nothing here can tell for how long.
   *
   * @param {FolderOptions["machine"]} machine
   */
  #align(machine) {
    const nowMs = this.nowMs();
    for (const { value } of this.tables.list()) {
      if (keptUntilMs(value) > nowMs && hasClaimsAt(textOf(value), nowMs)) return;
    }
    this.#live.makeRoom(0);
    this.#state = { ...this.#state, ...alignedTime(this.#state, machine) };
    this.#changed = true;
  }
}
