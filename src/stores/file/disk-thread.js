/**
 * The thread that owns the files of a folder, for all stores of this process. It is JavaScript, because Node starts a
 * thread from a file as it is.
 *
 * It takes all requests that have gathered, answers them in one transaction of LMDB, and replies when the transaction is on
 * the disk. What comes meanwhile gathers for the next one. Nothing of that ever stops the thread of the application:
 * neither a slow disk nor another process that is in the middle of a transaction.
 */
import { closeSync, fsyncSync, mkdirSync, openSync } from "node:fs";
import { dirname, join } from "node:path";
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { Database } from "./database.js";
import { checkFolder } from "./folder-checks.js";
import { nameOfFolder, nameOfProcess, takeName } from "./turns.js";

/**
 * @typedef {import("./protocol.ts").Letter} Letter
 * @typedef {import("./protocol.ts").Answer} Answer
 * @typedef {import("./protocol.ts").Failure} Failure
 * @typedef {import("./protocol.ts").Outcome} Outcome
 * @typedef {import("./protocol.ts").SwapReply} SwapReply
 * @typedef {import("./protocol.ts").SwapRequest} SwapRequest
 */

/** After these the files have to be opened anew: LMDB does nothing more with what it has in memory. */
const PANIC_CODES = new Set([-30795, -30797, -30796, -30782, -30779]);

/** Requests in one transaction, so that none waits for too many others. */
const LETTERS_AT_ONCE = 64;

const port = /** @type {import("node:worker_threads").MessagePort} */ (parentPort);
const data = /** @type {import("./protocol.ts").ThreadData} */ (workerData);

/** How long to wait until another thread or process has opened or closed the file. */
const OPEN_MS = 3_000;

/** @type {Database | undefined} */
let database;
/** Lets others of this process open the file. */
let letGo = () => {};

/** @type {(Letter | "close")[]} */
const inbox = [];
let isServing = false;

port.on("message", (letter) => {
  inbox.push(letter);
  if (!isServing) void serveAll();
});

async function serveAll() {
  isServing = true;
  let isOpen = true;
  while (isOpen && inbox.length > 0) {
    for (let more = receiveMessageOnPort(port); more !== undefined; more = receiveMessageOnPort(port)) {
      inbox.push(more.message);
    }
    const letters = inbox.splice(0, LETTERS_AT_ONCE);
    isOpen = letters.at(-1) !== "close";
    port.postMessage(await serve(letters.filter((letter) => letter !== "close")));
  }
  isServing = false;
  if (isOpen) return;
  await close();
  port.close();
}

/**
 * @param {readonly Letter[]} letters
 * @returns {Promise<Answer[]>}
 */
async function serve(letters) {
  try {
    database ??= await open();
  } catch (error) {
    return letters.map(({ number }) => ({ number, failure: failureOf(error) }));
  }
  try {
    return together(database, letters);
  } catch (error) {
    const failure = failureOf(error);
    if (PANIC_CODES.has(/** @type {number} */ (failure.code))) {
      await close();
      return letters.map(({ number }) => ({ number, failure }));
    }
    return letters.flatMap((letter) =>
      alone(/** @type {Database} */ (database), letter, failure, letters.length),
    );
  }
}

/**
 * All in one transaction: all of it comes about, or nothing.
 *
 * @param {Database} database
 * @param {readonly Letter[]} letters
 * @returns {Answer[]}
 */
function together(database, letters) {
  return database.transact(() =>
    letters.map(({ number, request }) => ({ number, reply: database.answer(request) })),
  );
}

/**
 * What could not be done together is done one by one: one change that finds no room on the disk is then in nobody's way.
 * A transaction that failed has changed nothing.
 *
 * @param {Database} database
 * @param {Letter} letter
 * @param {Failure} failure What the last attempt came to.
 * @param {number} count How many letters that attempt was about.
 * @returns {Answer}
 */
function alone(database, { number, request }, failure, count) {
  if (request.verb === "swap" && request.keys.length > 1) {
    return { number, reply: changeByChange(database, request) };
  }
  if (count === 1) return { number, failure };
  try {
    return { number, reply: database.transact(() => database.answer(request)) };
  } catch (error) {
    return { number, failure: failureOf(error) };
  }
}

/**
 * @param {Database} database
 * @param {SwapRequest} request
 * @returns {SwapReply}
 */
function changeByChange(database, request) {
  /** @type {Outcome[]} */
  const outcomes = [];
  /** @type {readonly (string | undefined)[]} */
  let sockets = [];
  for (const place of request.keys.keys()) {
    try {
      const reply = database.transact(() => database.swap(request, place, place + 1));
      outcomes.push(...reply.outcomes);
      sockets = reply.sockets;
    } catch (error) {
      outcomes.push({ failure: failureOf(error) });
    }
  }
  return { nowMs: database.nowMs(), outcomes, sockets };
}

async function open() {
  mkdirSync(data.folder, { recursive: true });
  const file = join(data.folder, "locks.mdb");
  const name = nameOfFolder(data.folder);
  // For as long as the file is open, and while it is being opened.
  const giveBack = await takeName(`${name}-${nameOfProcess()}`, OPEN_MS);
  if (giveBack === undefined) throw codedError("OPEN_TWICE", "another thread has it");
  try {
    const nextPlease = await takeName(`${name}-opening`, OPEN_MS);
    if (nextPlease === undefined) throw codedError("EBUSY", "another process does not finish opening it");
    try {
      checkFolder(data.folder, file);
      const opened = await Database.open(await loadLmdb(), file, data.wallMs);
      // LMDB puts the contents of a new file on the disk, but not its name.
      for (const folder of [data.folder, dirname(data.folder)]) syncFolder(folder);
      letGo = giveBack;
      return opened;
    } finally {
      nextPlease();
    }
  } catch (error) {
    giveBack();
    throw error;
  }
}

/** @param {string} folder */
function syncFolder(folder) {
  try {
    const descriptor = openSync(folder, "r");
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  } catch {
    // Not every system lets a folder be opened, and the one above may be somebody else's.
  }
}

async function loadLmdb() {
  try {
    return await import("lmdb");
  } catch (cause) {
    throw codedError("NO_LMDB", cause instanceof Error ? cause.message : String(cause));
  }
}

async function close() {
  const closing = database;
  database = undefined;
  await closing?.close();
  letGo();
  letGo = () => {};
}

/**
 * @param {string} code
 * @param {string} message
 */
function codedError(code, message) {
  return Object.assign(new Error(message), { code });
}

/**
 * @param {unknown} error
 * @returns {Failure}
 */
function failureOf(error) {
  const { code = "UNKNOWN", message } = /** @type {{ code?: string | number, message?: string }} */ (
    Object(error)
  );
  return { code, message: message ?? String(error) };
}
