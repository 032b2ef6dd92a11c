/**
 * Answers requests: all that have gathered in one transaction, and each as soon as its answer is true for good.
 *
 * What somebody holds, waits for or has seen must not be taken back, so its answer waits until the transaction is on the disk; also
 * where nothing was written, as another process may have written what was seen. What only gives back what would end soon anyway may be
 * lost, and is answered before.
 */
import { constants } from "node:os";
import { codedError, failureOf, isLackOfRoom } from "./failures.js";
import { STALE_BASE } from "./file-heads.js";
import { answer, swap } from "./requests.js";

/**
 * @typedef {import("./folder.js").Folder} Folder
 * @typedef {import("./protocol.ts").Letter} Letter
 * @typedef {import("./protocol.ts").Answer} Answer
 * @typedef {import("./protocol.ts").Failure} Failure
 * @typedef {import("./protocol.ts").Outcome} Outcome
 * @typedef {import("./protocol.ts").SwapReply} SwapReply
 * @typedef {import("./protocol.ts").SwapRequest} SwapRequest
 */

/**
 * After these the files have to be opened anew: LMDB does nothing more with what it has in memory, or the file system is gone that they were on,
 * and there may be another one in its place.
 */
const PANIC_CODES = new Set([
  ...[-30795, -30797, -30796, -30782, -30779, STALE_BASE],
  ...["EIO", "ESTALE", "ENODEV", constants.errno.EIO, constants.errno.ESTALE, constants.errno.ENODEV],
]);

/**
 * Answers all of them, in one post or two. Returns whether the files can be used further. Throws an error with the code
 * {@link STALE_BASE} where nothing was answered, and all can be asked again when the files are open anew.
 *
 * @param {Folder} folder
 * @param {readonly Letter[]} letters
 * @param {(answers: readonly Answer[]) => void} post
 * @returns {boolean}
 */
export function answerLetters(folder, letters, post) {
  /** What waits for the disk. @type {readonly { readonly number: number }[]} */
  let waiting = letters;
  try {
    /** @type {Answer[]} */
    const early = [];
    /** @type {Answer[]} */
    const firm = [];
    for (const [index, answer] of answersTo(folder, letters).entries()) {
      (mayBeLost(folder, letters[index], answer) ? early : firm).push(answer);
    }
    waiting = firm;
    if (early.length > 0) post(early);
    if (firm.length > 0) {
      folder.flush();
      post(firm);
    }
    return true;
  } catch (error) {
    const failure = failureOf(error);
    if (failure.code === STALE_BASE && waiting === letters) throw error;
    post(failing(waiting, failure));
    return false;
  }
}

/**
 * The same failure for all of them.
 *
 * @param {readonly { readonly number: number }[]} asked
 * @param {Failure} failure
 * @returns {Answer[]}
 */
export function failing(asked, failure) {
  return asked.map(({ number }) => ({ number, failure }));
}

/**
 * Whether an answer may go out before it is on the disk. A conflict may not: it says what another process has done.
 *
 * @param {Folder} folder
 * @param {Letter | undefined} letter
 * @param {Answer} answer
 */
function mayBeLost(folder, letter, { reply }) {
  if (letter?.request.verb !== "swap") return false;
  const { forgettableFromMs = Number.POSITIVE_INFINITY } = letter.request;
  const { others } = /** @type {Partial<SwapReply>} */ (reply ?? {});
  return forgettableFromMs <= folder.keptMs && others?.length === 0;
}

/**
 * All in one transaction: all of it comes about, or nothing. What cannot be done together is done one by one: one change that finds
 * no room on the disk is then in nobody's way.
 *
 * @param {Folder} folder
 * @param {readonly Letter[]} letters
 * @returns {Answer[]}
 */
function answersTo(folder, letters) {
  const { done, failure } = attempt(folder, () =>
    letters.map(({ number, request }) => ({ number, reply: answer(folder, request) })),
  );
  if (done !== undefined) return done;
  try {
    return letters.map((letter) => alone(folder, letter, failure, letters.length));
  } catch (error) {
    // Some may have been made by now, and must not be asked for again: whoever asked knows how.
    const { code, message } = failureOf(error);
    throw code === STALE_BASE ? codedError("HALF_DONE", message) : error;
  }
}

/**
 * @param {Folder} folder
 * @param {Letter} letter
 * @param {Failure | undefined} failure What the last attempt came to.
 * @param {number} count How many letters that attempt was about.
 * @returns {Answer}
 */
function alone(folder, { number, request }, failure, count) {
  if (request.verb === "swap" && request.count > 1) {
    return { number, reply: changeByChange(folder, request) };
  }
  if (count === 1 && failure !== undefined) return { number, failure };
  const tried = attempt(folder, () => ({ number, reply: answer(folder, request) }));
  return tried.done ?? { number, failure: tried.failure };
}

/**
 * @param {Folder} folder
 * @param {SwapRequest} request
 * @returns {SwapReply}
 */
function changeByChange(folder, request) {
  /** @type {(readonly [place: number, outcome: Outcome])[]} */
  const others = [];
  /** @type {readonly (string | undefined)[]} */
  let sockets = [];
  for (let place = 0; place < request.count; place++) {
    const { done, failure } = attempt(folder, () => swap(folder, request, place, place + 1));
    if (done === undefined) others.push([place, { failure }]);
    else {
      others.push(done.others[0] ?? [place, done.version]);
      sockets = done.sockets;
    }
  }
  return { nowMs: folder.nowMs(), version: 0, others, sockets };
}

/**
 * Makes one transaction, or says why it has changed nothing. Throws where the files cannot be used further.
 *
 * @template T
 * @param {Folder} folder
 * @param {() => T} work
 * @returns {{ readonly done: T, readonly failure?: undefined } | { readonly done?: undefined, readonly failure: Failure }}
 */
function attempt(folder, work) {
  try {
    return { done: folder.transact(work) };
  } catch (error) {
    const failure = failureOf(error);
    if (PANIC_CODES.has(failure.code)) throw error;
    if (isLackOfRoom(failure)) folder.makeRoom();
    return { failure };
  }
}
