/**
 * The letters that have come for a folder's thread.
 *
 * A thread without anything to do is put to sleep by the kernel, and to be woken takes it as long as half a transaction, on a virtual machine
 * more. So where the next letter is about to come, it is looked for for a moment instead. What is spent is processor time, up to `WATCH_MS`
 * after an answer; each time that nothing came in time, twice as many answers as before are not waited after. docs/decisions/0027-both-threads-awake.md has what
 * that gains.
 */
import { availableParallelism } from "node:os";
import { receiveMessageOnPort } from "node:worker_threads";

/**
 * @typedef {import("./protocol.ts").Letter | "close"} Mail
 *
 * @typedef {object} InboxOptions
 * @property {() => number} [nowMs]
 * @property {number} [processors] With one alone, this thread would keep the program from writing the next letter.
 */

/** How long it is worth to look for a letter. A program with a hundred callers writes the next one in less. */
const WATCH_MS = 0.5;
/** After so long the event loop has its turn, however many letters come: what was answered before it was on the disk is put there by a timer. */
const TURN_MS = 20;
/** The most answers after which nothing is looked for. */
const MOST_SKIPPED = 1_024;

export class Inbox {
  /** @type {import("node:worker_threads").MessagePort} */
  #port;
  /** @type {Mail[]} */
  #mail = [];
  #nowMs;
  #isOfUse;
  #isClosed = false;
  /** When the event loop had its last turn. */
  #turnedMs = Number.NEGATIVE_INFINITY;
  /** How many answers are not waited after when the next letter comes late, and how many of them are left now. */
  #skips = 1;
  #skipsLeft = 0;

  /**
   * @param {import("node:worker_threads").MessagePort} port
   * @param {() => void} onMail Something has come while nobody looked.
   * @param {InboxOptions} [options]
   */
  constructor(port, onMail, { nowMs = () => performance.now(), processors = availableParallelism() } = {}) {
    this.#port = port;
    this.#nowMs = nowMs;
    this.#isOfUse = processors > 1;
    port.on("message", (mail) => {
      this.#mail.push(mail);
      onMail();
    });
    port.once("close", () => {
      this.#isClosed = true;
    });
  }

  /**
   * What has come by now, in order.
   *
   * @param {number} most
   * @returns {Mail[]}
   */
  take(most) {
    while (this.#look());
    return this.#mail.splice(0, most);
  }

  /** Whether there is something to take. */
  get hasMail() {
    return this.#mail.length > 0;
  }

  /**
   * Lets the event loop have its turn where it has had none for a while. That a letter was heard is no sign of one: Node hands out a thousand of them in
   * one turn.
   */
  async turn() {
    if (this.#nowMs() - this.#turnedMs < TURN_MS) return;
    await new Promise((resolve) => setImmediate(resolve));
    this.#turnedMs = this.#nowMs();
  }

  /** Looks for the next letter for a moment, where that is likely to come. Returns whether it has. */
  comesSoon() {
    if (!this.#isOfUse) return false;
    if (this.#skipsLeft > 0) {
      this.#skipsLeft--;
      return false;
    }
    const beganMs = this.#nowMs();
    do {
      if (this.#look()) {
        this.#skips = 1;
        return true;
      }
    } while (this.#nowMs() - beganMs < WATCH_MS);
    this.#skipsLeft = this.#skips;
    this.#skips = Math.min(2 * this.#skips, MOST_SKIPPED);
    return false;
  }

  /** Puts the next letter with those that have come. Returns whether there was one. */
  #look() {
    // Node crashes where one that is closed is looked at.
    const next = this.#isClosed ? undefined : receiveMessageOnPort(this.#port);
    if (next === undefined) return false;
    this.#mail.push(next.message);
    return true;
  }
}
