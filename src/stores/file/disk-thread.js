/**
 * The thread that owns the files of a folder, for all stores of this process. It is JavaScript, because Node starts a
 * thread from a file as it is.
 *
 * It takes all requests that have gathered, and answers them in one transaction of LMDB. What comes meanwhile gathers for the
 * next one. Nothing of that ever stops the thread of the application: neither a slow disk nor another process that is in the middle of a
 * transaction.
 */
import { closeSync, fsyncSync, openSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { makeFolder } from "../../platform/make-folder.js";
import { takeLock } from "../../platform/process-lock.js";
import { codedError, failureOf } from "./failures.js";
import { STALE_BASE } from "./file-heads.js";
import { checkFolder } from "./folder-checks.js";
import { undisturbed } from "./gate.js";
import { Inbox } from "./inbox.js";
import { answerLetters, failing } from "./letters.js";
import { isOpenHere } from "./open-files.js";
import { openFolder } from "./open-folder.js";

/**
 * @typedef {import("./protocol.ts").Letter} Letter
 * @typedef {import("./protocol.ts").Answer} Answer
 * @typedef {import("./protocol.ts").Post} Post
 */

/** Requests in one transaction, so that none waits for too many others. */
const LETTERS_AT_ONCE = 64;

const port = /** @type {import("node:worker_threads").MessagePort} */ (parentPort);
const data = /** @type {import("./protocol.ts").ThreadData} */ (workerData);

/** After so long, what was answered before it was on the disk is put there, if nothing else has done so. */
const FLUSH_MS = 100;

/** How often letters are tried where others open the files in the same moment. */
const MAX_ATTEMPTS = 5;

/** How long to wait until another thread or process has opened or closed the file. */
const OPEN_MS = 3_000;
/** Between two looks at whether another thread of this process has closed it. */
const PAUSE_MS = 5;

/** @type {import("./folder.js").Folder | undefined} */
let folder;
/** The uppermost folder whose names may not be on the disk. */
let uppermost = dirname(data.folder);

const inbox = new Inbox(port, () => {
  if (!isServing) void serveAll();
});
let isServing = false;
/** Whether the disk failed to take what nobody waited for. */
let isInDoubt = false;
/** @type {NodeJS.Timeout | undefined} */
let flushing;

async function serveAll() {
  isServing = true;
  let isOpen = true;
  do {
    const letters = inbox.take(LETTERS_AT_ONCE);
    isOpen = letters.at(-1) !== "close";
    await serve(letters.filter((letter) => letter !== "close"));
    await inbox.turn();
    // Where others use the folder, the processor may be theirs as well.
  } while (isOpen && (inbox.hasMail || (folder?.isAlone === true && inbox.comesSoon())));
  isServing = false;
  if (isOpen) return;
  await close();
  port.close();
}

/**
 * @param {readonly Letter[]} letters
 * @param {number} attempts How often they may still be tried.
 * @returns {Promise<void>}
 */
async function serve(letters, attempts = MAX_ATTEMPTS) {
  if (letters.length === 0) return;
  try {
    if (isInDoubt) await close();
    folder ??= await open();
    const present = folder;
    if (!undisturbed(data.gate, () => answerLetters(present, letters, post))) await close();
    tidy();
    if (folder?.isFlushed === false) flushSoon();
  } catch (error) {
    const failure = failureOf(error);
    await close();
    if (failure.code === STALE_BASE && attempts > 1) return serve(letters, attempts - 1);
    post(failing(letters, failure));
  }
}

/** @param {readonly Answer[]} answers */
function post(answers) {
  /** @type {Post} */
  const post = { answers, diskMs: folder?.diskMs ?? 0, isAlone: folder?.isAlone ?? false };
  port.postMessage(post);
}

/** Also what nobody waits for is on the disk before long. */
function flushSoon() {
  flushing ??= setTimeout(() => {
    flushing = undefined;
    flush();
  }, FLUSH_MS);
}

function flush() {
  unwaited(() => folder?.flush());
}

function tidy() {
  unwaited(() => folder?.tidy());
}

/**
 * For what nobody waits for: whether it could be done is told to whoever asks next.
 *
 * @param {() => void} work
 */
function unwaited(work) {
  try {
    undisturbed(data.gate, work);
  } catch {
    isInDoubt = true;
  }
}

async function open() {
  const made = makeMissing();
  // All of them are above the folder.
  if (made !== undefined && made.length <= uppermost.length) uppermost = dirname(made);
  checkFolder(data.folder);
  const endMs = performance.now() + OPEN_MS;
  for (;;) {
    const nextPlease = await takeLock(join(data.folder, "opening"), OPEN_MS);
    if (nextPlease === undefined) throw codedError("EBUSY", "another process does not finish opening it");
    try {
      // Another thread may be about to close it.
      if (!isOpenHere(data.folder)) return await openFiles();
    } finally {
      nextPlease();
    }
    if (performance.now() > endMs) throw codedError("OPEN_TWICE", "another thread has it");
    await sleep(PAUSE_MS);
  }
}

/** A file system such as /proc says ENOENT, which means something else once the folder is there. */
function makeMissing() {
  try {
    return makeFolder(data.folder);
  } catch (error) {
    const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
    throw code === "ENOENT" ? codedError("NO_FOLDER", message) : error;
  }
}

async function openFiles() {
  const lmdb = await loadLmdb();
  const opened = await openFolder(lmdb, data.folder, {
    undisturbed: (work) => undisturbed(data.gate, work),
  });
  try {
    // The contents of new files are on the disk by now, but not their names.
    syncNames(data.folder, uppermost);
  } catch (error) {
    await opened.close();
    throw error;
  }
  uppermost = dirname(data.folder);
  return opened;
}

/** Not every system lets a folder be opened or flushed, and one above may be somebody else's. */
const NOT_OURS = new Set(["EACCES", "EPERM", "EISDIR", "EINVAL", "ENOTSUP"]);

/**
 * Puts the names on the disk that a folder and those above it have.
 *
 * @param {string} folder
 * @param {string} last The uppermost of them.
 */
function syncNames(folder, last) {
  try {
    const descriptor = openSync(folder, "r");
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    if (!NOT_OURS.has(String(failureOf(error).code))) throw error;
  }
  if (folder !== last) syncNames(dirname(folder), last);
}

async function loadLmdb() {
  try {
    return await import("lmdb");
  } catch (cause) {
    throw codedError("NO_LMDB", cause instanceof Error ? cause.message : String(cause));
  }
}

async function close() {
  clearTimeout(flushing);
  flushing = undefined;
  flush();
  isInDoubt = false;
  const closing = folder;
  folder = undefined;
  await closing?.close();
}
