/** Processes that lock and write until they are killed: locker-process.ts. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

export const lockerProgram = new URL("./locker-process.ts", import.meta.url);

export async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
