import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { TestContext } from "vitest";

/** Starts a process that holds a lock until its input ends. */
export async function holderOf(
  context: TestContext,
  folder: string,
  key: string,
  unshared: readonly string[] = [],
) {
  const program = fileURLToPath(new URL("./twin-process.ts", import.meta.url));
  const [command = "", ...args] = [...unshared, process.execPath, "--import=tsx", program, folder, key];
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  context.onTestFinished(() => void child.kill("SIGKILL"));
  const [said] = await once(child.stdout, "data");
  return { child, said: String(said) };
}
