/** Processes that end by themselves, in the middle of whatever their threads do: as applications end that do not close their stores. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { describe, expect, type TestContext, test } from "vitest";
import { forkProgram } from "../../programs.ts";
import { testFolder } from "./folders.ts";

function start({ onTestFinished }: TestContext, program: string, ...args: readonly string[]): ChildProcess {
  const child = forkProgram(new URL(program, import.meta.url), args, { silent: true });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

// (1) P has the file. (2) Q's thread waits for it inside of lmdb. (3) Q ends, so Node stops the thread's JavaScript, but not that wait. (4) P is
// gone, and Q's thread has the file. Nobody goes on with its transaction, and lmdb waits for it before it lets the process end.
describe.concurrent("file: a process that ends", { timeout: 60_000 }, () => {
  test.for([
    ["exit", 0],
    ["throw", 1],
  ] as const)(
    "by %s while its thread waits for the file, does end, and leaves the file to others",
    async ([how, code], context) => {
      const folder = testFolder(context);
      const locks = createLocks(fileStore(folder), { requestTimeoutMs: 20_000 });
      const ending = start(context, "./ending-process.ts", folder, how);
      await once(ending, "message");
      const stuck = start(context, "./stuck-process.ts", folder);
      await once(stuck, "message");
      ending.send("end");
      await once(ending, "message");
      const ended = once(ending, "exit");
      // It is about to end, and for that it needs the file.
      await new Promise((resolve) => setTimeout(resolve, 300));
      stuck.kill("SIGKILL");
      expect((await ended)[0]).toBe(code);
      expect(await locks.mutex("ending").run(() => "served")).toBe("served");
      await locks.close();
    },
  );
});
