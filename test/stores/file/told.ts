/** A process that does with a folder what it is told: told-process.js. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished } from "vitest";
import type { ListReply, Outcome, ReadReply, Request, SwapReply } from "../../../src/stores/file/protocol.ts";
import { letter, outcomesOf, reading, type Wish } from "./letters.ts";

export interface ToldOptions {
  readonly aloneAfter?: number;
  readonly unsettledBytes?: number;
  readonly logBytes?: number;
}

type Deed = "answer" | "answerAll" | "failEarly" | "failLate" | "tidy" | "flush" | "close";

export class Told {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async start(folder: string, options: ToldOptions = {}): Promise<Told> {
    const program = fileURLToPath(new URL("told-process.js", import.meta.url));
    const child = fork(program, [folder, JSON.stringify(options)], {
      serialization: "advanced",
      execArgv: [],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    const [why] = await Promise.race([once(child, "message"), once(child, "exit")]);
    expect(why).toEqual({ reply: "open" });
    return new Told(child);
  }

  /** Resolves to what it replies. Rejects where that fails, and does not settle where it is killed. */
  async does(deed: Deed, request?: Request | readonly Request[]): Promise<unknown> {
    const told = once(this.#child, "message");
    this.#child.send({ deed, request });
    const [{ reply, failure }] = await told;
    if (failure !== undefined) throw new Error(failure);
    return reply;
  }

  async swap(wishes: readonly Wish[]): Promise<readonly Outcome[]> {
    return outcomesOf(wishes, (await this.does("answer", letter(1, wishes).request)) as SwapReply);
  }

  async rows(keys: readonly string[]): Promise<ReadReply["rows"]> {
    return ((await this.does("answer", reading(1, keys).request)) as ReadReply).rows;
  }

  async list(): Promise<Readonly<Record<string, string>>> {
    const request = { verb: "list", prefix: "", after: undefined, limit: 1_000 } as const;
    const { rows } = (await this.does("answer", request)) as ListReply;
    return Object.fromEntries(rows.map(({ key, text }) => [key, text]));
  }

  async kill(): Promise<void> {
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }

  async close(): Promise<void> {
    const ended = once(this.#child, "exit");
    await this.does("close");
    this.#child.disconnect();
    await ended;
  }
}
