/**
 * The files of a folder: an LMDB environment with four tables.
 *
 * - the main one: what the folder knows of itself, under one key, as JSON: its format, its time, its latest version;
 * - `records`: a row for each key;
 * - `ends`: one entry for each record, in order of the time at which to look whether it is still of use;
 * - `owners`: the socket through which each owner can be woken.
 *
 * Everything happens in write transactions, also what only reads: of all processes, one at a time has one, and when it
 * has it, all that came before is on the disk. So what is seen is never taken back, and no snapshot is ever left behind
 * by a process that was killed.
 */
import { alignedTime, firstTime, readBoot, readMonotonicMs, resumedTime, timeOf } from "./disk-clock.js";
import { encodeRow, endKey, endMsOf, keptUntilMs, keyOf, textOf, versionOf } from "./row-format.js";

/**
 * @typedef {import("lmdb").RootDatabase<Buffer, Buffer>} Root
 * @typedef {import("lmdb").Database<Buffer, Buffer>} Table
 * @typedef {import("./disk-clock.js").KeptTime} KeptTime
 * @typedef {import("./protocol.ts").Request} Request
 * @typedef {import("./protocol.ts").Reply} Reply
 * @typedef {import("./protocol.ts").ListRequest} ListRequest
 * @typedef {import("./protocol.ts").Row} Row
 * @typedef {import("./protocol.ts").Outcome} Outcome
 * @typedef {import("./protocol.ts").SwapReply} SwapReply
 * @typedef {import("./protocol.ts").SwapRequest} SwapRequest
 * @typedef {{ format: number, versions: number } & KeptTime} State
 */

const FORMAT = 1;
const STATE_NAME = "holdfast";
const STATE_KEY = Buffer.from(STATE_NAME);
const NOTHING = Buffer.from([0]);
/** Address space, of which only what is used takes room. It grows by itself where it is not enough. */
const MAP_BYTES = 1_073_741_824;
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

  /**
   * @param {Root} root
   * @param {State} state
   */
  constructor(root, state) {
    this.#root = root;
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
      // A commit returns when it is on the disk, and others see it no sooner.
      overlappingSync: false,
    });
    try {
      const machine = { boot: readBoot(), monotonicMs: readMonotonicMs(), wallMs };
      const { state, isResumed } = root.transactionSync(() => arrive(root, machine));
      const database = new Database(root, state);
      if (isResumed) database.transact(() => database.#align(machine));
      return database;
    } catch (error) {
      await root.close();
      throw error;
    }
  }

  /**
   * Runs all of the work in one transaction, which is on the disk when this returns. Where the work or the transaction fails, nothing
   * has happened.
   *
   * @template T
   * @param {() => T} work
   * @returns {T}
   */
  transact(work) {
    return this.#root.transactionSync(() => {
      this.#state = readState(this.#root);
      this.#changed = false;
      const result = work();
      if (this.#changed) {
        const lastMonotonicMs = readMonotonicMs();
        const lastMs = timeOf(this.#state, lastMonotonicMs);
        writeState(this.#root, { ...this.#state, lastMs, lastMonotonicMs });
      }
      return result;
    });
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
        return this.swap(request, 0, request.keys.length);
      case "list":
        return this.#list(request);
      case "sweep":
        return this.#sweep(request.limit);
      case "register":
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
    for (let place = from; place < to; place++) outcomes.push(this.#swapOne(request, place, nowMs));
    const sockets = request.owners.map((owner) => this.#owners.get(Buffer.from(owner))?.toString());
    return { nowMs, outcomes, sockets };
  }

  async close() {
    await this.#root.close();
  }

  /**
   * @param {SwapRequest} request
   * @param {number} place
   * @param {number} nowMs
   * @returns {Outcome}
   */
  #swapOne({ keys, expected, texts, idle, keepUntilMs, earliestMs, latestMs }, place, nowMs) {
    const key = Buffer.from(/** @type {string} */ (keys[place]));
    const present = this.#records.getBinaryFast(key);
    const version = present === undefined ? 0 : versionOf(present);
    if (version !== expected[place]) return { current: this.#row(key) };
    const text = texts[place];
    if (text === undefined) return "same";
    if (nowMs < earliestMs || nowMs > latestMs) return "untimely";
    const keptMs = /** @type {number} */ (keepUntilMs[place]);
    // A counter for all keys, so that a version does not come back with a key that was removed.
    const next = ++this.#state.versions;
    this.#changed = true;
    this.#records.putSync(key, encodeRow(next, keptMs, idle[place] === true, text));
    // Later changes leave the entry where it is, and the sweep puts it right: most records change often before they end.
    if (version === 0) this.#ends.putSync(endKey(keptMs, key), NOTHING);
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
      if (value?.toString() === socket) this.#owners.removeSync(key);
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

/**
 * The state of a folder, which is made where there is none.
 *
 * @param {Root} root
 * @param {import("./disk-clock.js").MachineTime} machine
 * @returns {{ state: State, isResumed: boolean }}
 */
function arrive(root, machine) {
  const isNew = root.get(STATE_KEY) === undefined && [...root.getKeys({ limit: 1 })].length === 0;
  const before = isNew ? undefined : readState(root);
  const time = before === undefined ? firstTime(machine) : resumedTime(before, machine);
  if (before !== undefined && time === before) return { state: before, isResumed: false };
  const state = { format: FORMAT, versions: before?.versions ?? 0, ...time };
  writeState(root, state);
  return { state, isResumed: before !== undefined };
}

/**
 * @param {Root} root
 * @returns {State}
 */
function readState(root) {
  const text = root.get(STATE_KEY)?.toString();
  if (text === undefined) throw codedError("FOREIGN", "it has no entry of Holdfast");
  const { format, versions, boot, offsetMs, lastMs, lastMonotonicMs } = parse(text);
  if (Number.isInteger(format) && format > FORMAT) throw codedError("NEWER_FORMAT", `format ${format}`);
  const numbers = [versions, offsetMs, lastMs, lastMonotonicMs];
  if (format !== FORMAT || typeof boot !== "string" || !numbers.every(Number.isFinite)) {
    throw codedError("FOREIGN", "its entry of Holdfast cannot be read");
  }
  return { format, versions, boot, offsetMs, lastMs, lastMonotonicMs };
}

/**
 * @param {Root} root
 * @param {State} state
 */
function writeState(root, state) {
  const { format, versions, boot, offsetMs, lastMs, lastMonotonicMs } = state;
  root.putSync(
    STATE_KEY,
    Buffer.from(JSON.stringify({ format, versions, boot, offsetMs, lastMs, lastMonotonicMs })),
  );
}

/**
 * @param {string} text
 * @returns {Record<string, any>}
 */
function parse(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}

/**
 * Whether a record names a claim whose time is not up. One that cannot be read may.
 *
 * @param {string} text
 * @param {number} nowMs
 */
function hasClaimsAt(text, nowMs) {
  const { held, waiting } = parse(text);
  if (!Array.isArray(held) || !Array.isArray(waiting)) return true;
  return [...held, ...waiting].some(({ expiresAtMs }) => !(expiresAtMs <= nowMs));
}

/**
 * @param {string} code
 * @param {string} message
 */
function codedError(code, message) {
  return Object.assign(new Error(message), { code });
}
