/**
 * `locks.mdb`: all records as they were when a log was last put into it. Every commit is on the disk when it returns. What came
 * after it is in the logs.
 */
import { firstTime } from "./disk-clock.js";
import { FORMAT, firstLog, firstVersion, isNew, readState, timeFrom, writeState } from "./folder-state.js";
import { changesIn, damagedLog } from "./log.js";

/**
 * @typedef {import("./lmdb-file.js").LmdbFile} LmdbFile
 * @typedef {import("./lmdb-file.js").Table} Table
 * @typedef {import("./folder-state.js").State} State
 * @typedef {import("./log.js").Log} Log
 * @typedef {import("./log.js").LogContents} LogContents
 */

export class Base {
  /** @type {LmdbFile} */
  #file;
  /** @type {Table} */
  #records;

  /** @param {LmdbFile} file */
  constructor(file) {
    this.#file = file;
    this.#records = file.table("records");
  }

  /**
   * Makes sure that the file is ours. A new one begins with the time of the machine.
   *
   * @param {LmdbFile} file
   * @param {import("./disk-clock.js").MachineTime} machine
   * @returns {Base}
   */
  static of(file, machine) {
    file.transact(() => {
      if (!isNew(file.root)) return readState(file.root);
      const state = { format: FORMAT, versions: 0, ...firstTime(machine), ...firstLog() };
      writeState(file.root, state);
      return state;
    });
    return new Base(file);
  }

  /**
   * Puts a log into it that nobody writes to any more, unless it is there already.
   *
   * @param {Log} log
   * @param {number} generation
   * @param {{ end: number, sum: number }} last Where it ends.
   */
  fold(log, generation, last) {
    this.#file.transact(() => {
      const before = readState(this.#file.root);
      if (before.generation > generation) {
        // Whoever did that may have failed to put it on the disk.
        this.#file.flushAnew();
        return;
      }
      const contents = log.read(generation, before.sum, { upTo: last.end });
      if (before.generation !== generation || contents.end !== last.end || contents.sum !== last.sum) {
        throw damagedLog(generation, contents.end, last.end);
      }
      this.#apply(contents);
      writeState(this.#file.root, stateAfter(before, contents, generation + 1));
    });
  }

  /**
   * For a run that begins: puts all into it that the logs still have, and begins a log that neither of them is, and other versions.
   *
   * @param {Log} log
   */
  foldAll(log) {
    this.#file.transact(() => {
      const before = readState(this.#file.root);
      const { generation } = before;
      const former = log.read(generation, before.sum);
      const latter = log.read(generation + 1, former.sum);
      this.#apply(former);
      this.#apply(latter);
      const between = stateAfter(before, former, generation + 1);
      const after = stateAfter(between, latter, generation + 2);
      writeState(this.#file.root, { ...after, versions: firstVersion() });
    });
  }

  /**
   * @param {(state: State) => void} take
   * @param {(key: Buffer, row: Buffer) => void} each
   */
  read(take, each) {
    this.#file.transact(() => {
      take(readState(this.#file.root));
      for (const { key, value } of this.#records.getRange({})) each(key, value);
    });
  }

  /** @param {LogContents} contents */
  #apply(contents) {
    for (const { key, row } of changesIn(contents)) {
      this.#file.makeRoom(key.length + row.length);
      if (row.length > 0) this.#records.putSync(key, row);
      else this.#records.removeSync(key);
    }
  }
}

/**
 * @param {State} before
 * @param {LogContents} contents
 * @param {number} generation
 * @returns {State}
 */
function stateAfter(before, { time, sum }, generation) {
  return { ...before, ...(time && timeFrom(time)), generation, sum };
}
