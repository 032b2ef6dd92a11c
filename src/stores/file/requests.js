/** What can be asked of a folder. All of it is answered in a transaction of the folder. */
import { ChangeReader, countChanges, packChange } from "./change-format.js";
import { endMsOf, keptUntilMs, keyOf, ownerKey, textOf, versionOf } from "./row-format.js";

/**
 * @typedef {import("./protocol.ts").Request} Request
 * @typedef {import("./protocol.ts").Reply} Reply
 * @typedef {import("./protocol.ts").ListRequest} ListRequest
 * @typedef {import("./protocol.ts").Row} Row
 * @typedef {import("./protocol.ts").Outcome} Outcome
 * @typedef {import("./protocol.ts").SwapReply} SwapReply
 * @typedef {import("./protocol.ts").SwapRequest} SwapRequest
 * @typedef {import("./folder.js").Folder} Folder
 */

/** Entries that one sweep looks at, so that it holds up nobody for long. */
const LOOKED_AT_ONCE = 4_000;

/**
 * @param {Folder} folder
 * @param {Request} request
 * @returns {Reply}
 */
export function answer(folder, request) {
  switch (request.verb) {
    case "read":
      return { nowMs: folder.nowMs(), rows: request.keys.map((key) => rowOf(folder, Buffer.from(key))) };
    case "swap":
      return swap(folder, request, 0, countChanges(request));
    case "list":
      return list(folder, request);
    case "sweep":
      return sweep(folder, request.limit);
    case "register":
      register(folder, Buffer.from(request.owner), Buffer.from(request.socket));
      return undefined;
    case "forget":
      forget(folder, request.socket, request.owner);
      return undefined;
    case "sockets":
      return {
        sockets: [...new Set(folder.tables.listOwners().map(({ value }) => value.toString()))],
      };
  }
}

/**
 * Makes the changes from one place up to another.
 *
 * @param {Folder} folder
 * @param {SwapRequest} request
 * @param {number} from
 * @param {number} to
 * @returns {SwapReply}
 */
export function swap(folder, request, from, to) {
  /** @type {Outcome[]} */
  const outcomes = [];
  // No other process has a transaction meanwhile, so all of this one is one moment.
  const nowMs = folder.nowMs();
  const isTimely = nowMs >= request.earliestMs && nowMs <= request.latestMs;
  const change = new ChangeReader(request.bytes);
  for (let place = 0; place < from; place++) change.next();
  // What was made goes into the log in one piece, up to a change that was not.
  let madeFrom = change.end;
  for (let place = from; place < to; place++) {
    change.next();
    const outcome = swapOne(folder, change, /** @type {number} */ (request.expected[place]), isTimely);
    outcomes.push(outcome);
    if (typeof outcome === "number") continue;
    if (madeFrom < change.at) folder.note(change.between(madeFrom, change.at));
    madeFrom = change.end;
  }
  if (madeFrom < change.end) folder.note(change.between(madeFrom, change.end));
  const sockets = request.owners.map((owner) => folder.tables.socketOf(Buffer.from(owner))?.toString());
  return { nowMs, outcomes, sockets };
}

/**
 * @param {Folder} folder
 * @param {ChangeReader} change
 * @param {number} expected
 * @param {boolean} isTimely
 * @returns {Outcome}
 */
function swapOne(folder, change, expected, isTimely) {
  const { tables } = folder;
  const present = tables.find(change);
  const version = present === undefined ? 0 : versionOf(present);
  if (version !== expected) return { current: rowOf(folder, change.key) };
  if (!change.hasRow) return "same";
  if (!isTimely) return "untimely";
  const next = folder.nextVersion();
  tables.set(change, change.versioned(next), version === 0);
  return next;
}

/**
 * @param {Folder} folder
 * @param {Buffer} key
 * @returns {Row | undefined}
 */
function rowOf(folder, key) {
  const row = folder.tables.get(key);
  return row === undefined ? undefined : { version: versionOf(row), text: textOf(row) };
}

/**
 * @param {Folder} folder
 * @param {ListRequest} request
 */
function list(folder, { prefix, after, limit }) {
  const beginning = Buffer.from(prefix);
  // No key contains a zero, so this is just behind the key.
  const next = after === undefined ? beginning : Buffer.from(`${after}\0`);
  const start = Buffer.compare(next, beginning) < 0 ? beginning : next;
  const rows = [];
  for (const { key, value } of [...folder.tables.list(start.length === 0 ? { limit } : { start, limit })]) {
    if (!key.subarray(0, beginning.length).equals(beginning)) break;
    rows.push({ key: key.toString(), text: textOf(value) });
  }
  return { nowMs: folder.nowMs(), rows };
}

/**
 * @param {Folder} folder
 * @param {number} limit
 */
function sweep(folder, limit) {
  const nowMs = folder.nowMs();
  let removed = 0;
  let looked = 0;
  for (const { key: entry } of folder.tables.firstEnds(LOOKED_AT_ONCE)) {
    if (endMsOf(entry) >= nowMs || removed === limit) break;
    looked++;
    const key = keyOf(entry);
    const row = folder.tables.get(key);
    if (row !== undefined && keptUntilMs(row) >= nowMs) folder.tables.postpone(entry, key, row);
    else {
      folder.tables.remove(entry, key);
      folder.note(packChange(key));
      removed++;
    }
  }
  return { removed, more: looked === LOOKED_AT_ONCE };
}

/**
 * @param {Folder} folder
 * @param {Buffer} owner
 * @param {Buffer} socket
 */
function register(folder, owner, socket) {
  folder.tables.setSocket(owner, socket);
  folder.note(packChange(ownerKey(owner), socket));
}

/**
 * @param {Folder} folder
 * @param {string} socket
 * @param {string | undefined} owner
 */
function forget(folder, socket, owner) {
  const rows =
    owner === undefined
      ? folder.tables.listOwners()
      : [{ key: Buffer.from(owner), value: folder.tables.socketOf(Buffer.from(owner)) }];
  for (const { key, value } of rows) {
    // Another store may have become the owner's since.
    if (value?.toString() !== socket) continue;
    folder.tables.removeSocket(key);
    folder.note(packChange(ownerKey(key)));
  }
}
