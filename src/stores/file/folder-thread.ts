/** A folder's thread as the stores of this process see it: they share one for each folder, which ends with the last of them. */
import { realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { Worker } from "node:worker_threads";
import { HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import { DiskPace } from "./disk-pace.ts";
import { mapFailure } from "./errors.ts";
import { closeGates, newGate } from "./gate.js";
import type { Letter, Post, Replies, Reply, Request, ThreadData } from "./protocol.ts";

interface Pending {
  readonly resolve: (reply: never) => void;
  readonly reject: (error: unknown) => void;
  /** What its process stays awake for, if it does. */
  readonly wait: number | undefined;
}

/** How long the end of a thread is waited for. */
const LEAVE_MS = 5_000;

const threads = new Map<string, FolderThread>();

/** Those of the threads that have not ended. */
const gates = new Set<SharedArrayBuffer>();
const finishTransactions = () => closeGates(gates);

export class FolderThread {
  readonly folder: string;
  #users = 0;
  #worker: Worker | undefined;
  readonly #pending = new Map<number, Pending>();
  #lastNumber = 0;
  readonly #pace = new DiskPace();

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** The thread of a folder. It is started with the first request. Every user leaves it once. */
  static of(folder: string): FolderThread {
    const path = realPath(folder);
    const thread = threads.get(path) ?? new FolderThread(path);
    threads.set(path, thread);
    thread.#users++;
    return thread;
  }

  /** How many requests this process has made of the folder. */
  get requests(): number {
    return this.#lastNumber;
  }

  /** How long the disk takes for a change, of late, in milliseconds. */
  get diskMs(): number {
    return this.#pace.diskMs;
  }

  ask<R extends Request>(request: R): Promise<Replies[R["verb"]]> {
    const worker = this.#worker ?? this.#start();
    const number = ++this.#lastNumber;
    return new Promise((resolve, reject) => {
      // Somebody awaits it, so the process stays until it is there.
      if (this.#pending.size === 0) worker.ref();
      this.#pending.set(number, { resolve, reject, wait: this.#pace.sent() });
      const letter: Letter = { number, request };
      worker.postMessage(letter);
    });
  }

  /**
   * Resolves when the thread has ended, for its last user; or after a while, when another process is stuck in the middle of
   * a transaction. Then it ends as soon as it can.
   */
  async leave(): Promise<void> {
    this.#users--;
    if (this.#users > 0) return;
    threads.delete(this.folder);
    const worker = this.#worker;
    if (worker === undefined) return;
    this.#worker = undefined;
    worker.ref();
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => {
        worker.unref();
        resolve();
      }, LEAVE_MS);
      worker.once("exit", () => {
        clearTimeout(timer);
        this.#rejectAll(undefined);
        resolve();
      });
      worker.postMessage("close");
    });
  }

  #start(): Worker {
    const gate = newGate();
    if (gates.size === 0) process.on("exit", finishTransactions);
    gates.add(gate);
    const workerData: ThreadData = { folder: this.folder, gate };
    const worker = new Worker(new URL("./disk-thread.js", import.meta.url), {
      workerData,
      // What the application loads into its own thread has no business in this one.
      execArgv: [],
      name: "holdfast-file",
    });
    worker.unref();
    worker.on("message", (post: Post) => this.#deliver(post));
    let cause: unknown;
    worker.on("error", (error) => {
      cause = error;
    });
    // Not before: what it has open is closed until then, and another thread must not have it open meanwhile.
    worker.on("exit", () => {
      gates.delete(gate);
      if (gates.size === 0) process.off("exit", finishTransactions);
      this.#lose(worker, cause);
    });
    this.#worker = worker;
    return worker;
  }

  #deliver({ answers, ...pace }: Post): void {
    this.#pace.told(pace);
    for (const { number, reply, failure } of answers) {
      const pending = this.#pending.get(number);
      this.#pending.delete(number);
      this.#pace.answered(pending?.wait);
      if (failure === undefined) pending?.resolve(reply as Reply as never);
      else pending?.reject(mapFailure(failure, this.folder));
    }
    if (this.#pending.size === 0) this.#worker?.unref();
  }

  /** The thread is gone, and nobody knows what it has done last. The next request starts another one. */
  #lose(worker: Worker, cause: unknown): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    this.#rejectAll(cause);
  }

  #rejectAll(cause: unknown): void {
    const lost = [...this.#pending.values()];
    this.#pending.clear();
    const error = lossOf(cause);
    for (const { reject } of lost) reject(error);
  }
}

/** One path for a folder that can be reached by several, also where it is yet to be made: by the thread, which tells what is wrong with it. */
function realPath(folder: string): string {
  const path = resolve(folder);
  try {
    return realpathSync(path);
  } catch {
    const above = dirname(path);
    return above === path ? path : join(realPath(above), basename(path));
  }
}

function lossOf(cause: unknown): HoldfastError {
  const { code } = Object(cause) as { code?: unknown };
  if (code === "MODULE_NOT_FOUND" || code === "ERR_MODULE_NOT_FOUND") {
    const what =
      "The file store cannot find its file disk-thread.js. Leave holdfast out of the bundle: mark it as external.";
    return new HoldfastError("STORE_FAILURE", what, { cause });
  }
  const what = "The thread of the file store has ended. The result of the request is unknown. Try again.";
  return new StoreUnavailableError(what, { cause });
}
