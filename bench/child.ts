/** Processes for measurements that need a heap of their own: a parent calls functions by name, the child answers. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** What a child offers. Arguments and results travel as JSON. */
export type Offer = Readonly<Record<string, (argument: never) => Promise<unknown>>>;

interface Call {
  readonly name: string;
  readonly argument: unknown;
}

type Answer = { readonly value: unknown } | { readonly error: string };

/** In the child: answers calls, one after the other. */
export function offer(functions: Offer): void {
  process.on("message", async ({ name, argument }: Call) => {
    process.send?.(await answer(functions, name, argument));
  });
  // Whoever measures is gone, and nobody else would end this.
  process.on("disconnect", () => process.exit());
}

async function answer(functions: Offer, name: string, argument: unknown): Promise<Answer> {
  try {
    return { value: await functions[name]?.(argument as never) };
  } catch (error) {
    return { error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
}

/** In the parent: a process that runs a compiled file of this folder. */
export class Child<T extends Offer> {
  readonly #process: ChildProcess;
  readonly #ended: Promise<Answer>;

  constructor(file: URL, nodeOptions: readonly string[] = []) {
    this.#process = fork(fileURLToPath(file), {
      execArgv: ["--expose-gc", "--max-old-space-size=8192", ...nodeOptions],
    });
    this.#ended = once(this.#process, "exit").then(([code]) => ({
      error: `The process ended with ${code}.`,
    }));
  }

  async call<Name extends keyof T & string>(
    name: Name,
    argument: Parameters<T[Name]>[0],
  ): Promise<Awaited<ReturnType<T[Name]>>> {
    this.#process.send({ name, argument } satisfies Call);
    const received = once(this.#process, "message").then(([answer]) => answer as Answer);
    const answer = await Promise.race([received, this.#ended]);
    if ("error" in answer) throw new Error(answer.error);
    return answer.value as Awaited<ReturnType<T[Name]>>;
  }

  stop(): void {
    this.#process.kill("SIGKILL");
  }
}
