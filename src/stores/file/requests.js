/** What can be asked of a folder. All of it is answered in a transaction of the folder. */
import { ChangeReader, packChange } from "./change-format.js";
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
      return {
        nowMs: folder.nowMs(),
        rows: request.keys.map((key) => rowOf(folder.tables, Buffer.from(key))),
      };
    case "swap":
      return swap(folder, request, 0, request.count);
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
  /** @type {[place: number, outcome: Outcome][]} */
  const others = [];
  // No other process has a transaction meanwhile, so all of this one is one moment.
  const nowMs = folder.nowMs();
  const isTimely = nowMs >= request.earliestMs && nowMs <= request.latestMs;
  // Each key is in a request once, so one will do for all of them.
  const version = folder.nextVersion();
  const change = ChangeReader.of(request);
  for (let place = 0; place < from; place++) change.next();
  // What was made goes into the log in one piece, up to a change that was not.
  let madeFrom = change.end;
  for (let place = from; place < to; place++) {
    change.next();
    const other = swapOne(folder, change, change.expectedAt(place), isTimely ? version : undefined);
    if (other === undefined) continue;
    others.push([place, other]);
    if (madeFrom < change.at) folder.note(change.between(madeFrom, change.at));
    madeFrom = change.end;
  }
  if (madeFrom < change.end) folder.note(change.between(madeFrom, change.end));
  const sockets = request.owners.map((owner) => folder.tables.socketOf(Buffer.from(owner))?.toString());
  return { nowMs, version, others, sockets };
}

/**
 * @param {Folder} folder
 * @param {ChangeReader} change
 * @param {number} expected
 * @param {number | undefined} version What it gets, if it is in time.
 * @returns {Outcome | undefined} Undefined: it was made.
 */
function swapOne({ tables }, change, expected, version) {
  const present = tables.versionOf(change);
  if (present !== expected) return { current: rowOf(tables, change.key) };
  if (!change.hasRow) return "same";
  if (version === undefined) return "untimely";
  tables.set(change, version, present === 0);
  return undefined;
}

/**
 * @param {Folder["tables"]} tables
 * @param {Buffer} key
 * @returns {Row | undefined}
 */
function rowOf(tables, key) {
  const row = tables.get(key);
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
