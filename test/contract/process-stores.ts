/**
 * Stores that live in processes of their own, for the contract suite: every call goes there and back through the channel between a
 * process and its child. A process is started once, and serves the instances of all tests that have the same place in theirs.
 */
import type { ChildProcess } from "node:child_process";
import { type GrantListener, HoldfastError, type RenewAnswer, type Store } from "holdfast";
import type { OpenOptions } from "holdfast/testing";
import { forkProgram } from "../programs.ts";
import type { Call, Failure, Listen, Told } from "./store-process.ts";

const program = new URL("./store-process.ts", import.meta.url);

export class StoreProcess {
  readonly #child: ChildProcess;
  readonly #open = new Map<number, Settle>();
  readonly #listeners = new Map<number, GrantListener>();
  #calls = 0;
  #stores = 0;

  /** Starts a process for stores over this folder. */
  constructor(folder: string) {
    // Bigint fences travel as they are.
    this.#child = forkProgram(program, [folder], { serialization: "advanced" });
    this.#child.on("message", (message) => this.#heard(message as Told));
    this.#child.once("exit", (code, signal) => {
      const error = new Error(`The process of the store ended with ${code ?? signal}.`);
      for (const { reject } of this.#open.values()) reject(error);
    });
  }

  async store(options: OpenOptions): Promise<Store> {
    const number = ++this.#stores;
    const call = (verb: Call["verb"], argument?: unknown) => this.#call(number, verb, argument);
    const about = (await call("open", options)) as Pick<Store, "name" | "durability" | "counts">;
    return {
      ...about,
      acquire: (request) => call("acquire", request) as ReturnType<Store["acquire"]>,
      renew: async (refs) => ((await call("renew", refs)) as RenewAnswer[]).map(withError),
      release: (refs) => call("release", refs) as ReturnType<Store["release"]>,
      look: (query) => call("look", query) as ReturnType<Store["look"]>,
      onGrant: (owner, listener) => {
        const nth = ++this.#calls;
        this.#listeners.set(nth, listener);
        call("listen", { owner, listener: nth } satisfies Listen).catch(() => {});
        // Later pushes are heard: to stop them is the task of the store.
        return () => void call("unlisten", nth).catch(() => {});
      },
      close: () => call("close") as Promise<void>,
    };
  }

  stop(): void {
    this.#child.kill("SIGKILL");
  }

  async #call(store: number, verb: Call["verb"], argument: unknown): Promise<unknown> {
    const number = ++this.#calls;
    return new Promise((resolve, reject) => {
      this.#open.set(number, { resolve, reject });
      this.#child.send({ number, store, verb, argument } satisfies Call);
    });
  }

  #heard(told: Told): void {
    if ("listener" in told) {
      this.#listeners.get(told.listener)?.(told.refs);
      return;
    }
    const open = this.#open.get(told.number);
    this.#open.delete(told.number);
    if ("failure" in told) open?.reject(errorOf(told.failure));
    else open?.resolve(told.answer);
  }
}

interface Settle {
  resolve(answer: unknown): void;
  reject(error: Error): void;
}

function errorOf({ code, message, key }: Failure): HoldfastError {
  return new HoldfastError(code, message, { key });
}

function withError(answer: RenewAnswer): RenewAnswer {
  return answer.state === "failed" ? { ...answer, error: errorOf(answer.error as Failure) } : answer;
}
