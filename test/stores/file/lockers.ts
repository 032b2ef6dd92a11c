/** Processes that lock and write until they are killed: locker-process.ts. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileDriver } from "../../../src/stores/file/driver.ts";

export const lockerProgram = new URL("./locker-process.ts", import.meta.url);

export async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

/** All records, after something else has been done while the folder was open. */
export async function recordsIn(data: string, before = async () => {}): Promise<unknown> {
  const driver = fileDriver(data);
  try {
    await driver.read([]);
    await before();
    return (await driver.list("", undefined, 100_000)).records;
  } finally {
    await driver.close?.();
  }
}
