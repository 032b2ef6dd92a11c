/** The client of a folder's thread. All stores of a process that use the same folder share it; it ends with the last of them. */
import { realpathSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { Worker } from "node:worker_threads";
import { HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import { mapFailure } from "./errors.ts";
import { newExitGuard, waitForTransactions } from "./exit-guard.ts";
import type { Answer, Message, Replies, Reply, Request, ThreadData } from "./protocol.ts";

interface Pending {
  readonly resolve: (reply: never) => void;
  readonly reject: (error: unknown) => void;
}

/** The time to wait for the end of a thread. */
const LEAVE_MS = 5_000;

const clients = new Map<string, FolderClient>();
/** The guards of all threads that run. */
const guards = new Set<SharedArrayBuffer>();
const onExit = () => waitForTransactions(guards);

export class FolderClient {
  readonly folder: string;
  #users = 0;
  #worker: Worker | undefined;
  readonly #pending = new Map<number, Pending>();
  #lastNumber = 0;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** The client of a folder. Each user leaves it once. Its thread starts with the first request. */
  static of(folder: string): FolderClient {
    const path = realPath(folder);
    const client = clients.get(path) ?? new FolderClient(path);
    clients.set(path, client);
    client.#users++;
    return client;
  }

  ask<R extends Request>(request: R): Promise<Replies[R["verb"]]> {
    const worker = this.#worker ?? this.#start();
    const number = ++this.#lastNumber;
    return new Promise((resolve, reject) => {
      // A caller awaits the answer, so the process must not end before it.
      if (this.#pending.size === 0) worker.ref();
      this.#pending.set(number, { resolve, reject });
      worker.postMessage({ number, request } satisfies Message);
    });
  }

  /** Resolves when the thread has ended, for its last user, or after a while if another process is stuck in a transaction. */
  async leave(): Promise<void> {
    this.#users--;
    if (this.#users > 0) return;
    clients.delete(this.folder);
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
    const guard = newExitGuard();
    if (guards.size === 0) process.on("exit", onExit);
    guards.add(guard);
    const workerData: ThreadData = { folder: this.folder, guard };
    // The options of Node are those of the application, and may load its code.
    const options = { workerData, execArgv: [], name: "holdfast-file" };
    const worker = new Worker(new URL("./thread.js", import.meta.url), options);
    worker.unref();
    worker.on("message", (answers: readonly Answer[]) => this.#deliver(answers));
    let cause: unknown;
    worker.on("error", (error) => {
      cause = error;
    });
    // The files of a thread are open until it exits, and the next thread must not open them before.
    worker.on("exit", () => {
      guards.delete(guard);
      if (guards.size === 0) process.off("exit", onExit);
      if (this.#worker !== worker) return;
      this.#worker = undefined;
      this.#rejectAll(cause);
    });
    this.#worker = worker;
    return worker;
  }

  #deliver(answers: readonly Answer[]): void {
    for (const { number, reply, failure } of answers) {
      const pending = this.#pending.get(number);
      this.#pending.delete(number);
      if (failure === undefined) pending?.resolve(reply as Reply as never);
      else pending?.reject(mapFailure(failure, this.folder));
    }
    if (this.#pending.size === 0) this.#worker?.unref();
  }

  /** The outcome of these requests is unknown. The next request starts another thread. */
  #rejectAll(cause: unknown): void {
    const lost = [...this.#pending.values()];
    this.#pending.clear();
    const error = threadLost(cause);
    for (const { reject } of lost) reject(error);
  }
}

/** One path for a folder that several paths lead to. A part that is missing stays as it is; the thread reports impossible ones. */
function realPath(folder: string): string {
  const path = resolve(folder);
  try {
    return realpathSync(path);
  } catch {
    const above = dirname(path);
    return above === path ? path : join(realPath(above), basename(path));
  }
}

function threadLost(cause: unknown): HoldfastError {
  const { code } = Object(cause) as { code?: unknown };
  if (code === "MODULE_NOT_FOUND" || code === "ERR_MODULE_NOT_FOUND") {
    const message =
      "The file store cannot find its file thread.js. Leave holdfast out of the bundle: mark it as external.";
    return new HoldfastError("STORE_FAILURE", message, { cause });
  }
  const message = "The thread of the file store has ended. The result of the request is unknown. Try again.";
  return new StoreUnavailableError(message, { cause });
}
