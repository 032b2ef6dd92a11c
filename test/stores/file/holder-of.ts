import { spawn } from "node:child_process";
import { once } from "node:events";
import type { TestContext } from "vitest";
import { compiled } from "../../programs.ts";

/** Starts a process that holds a lock until its input ends. */
export async function holderOf(
  context: TestContext,
  folder: string,
  key: string,
  unshared: readonly string[] = [],
) {
  const program = compiled(new URL("./twin-process.ts", import.meta.url));
  const [command = "", ...args] = [...unshared, process.execPath, program, folder, key];
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  context.onTestFinished(() => void child.kill("SIGKILL"));
  const [said] = await once(child.stdout, "data");
  return { child, said: String(said) };
}
