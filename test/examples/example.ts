/**
 * Runs an example against the built package, in a process of its own. `replicas.test.ts` does so as a reader would, through tsx; the others
 * are compiled before, which spares a second of the processor for each process.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { root } from "../source-tree.ts";

const preloaded = new URL("compiled-examples.js", import.meta.url);

/** The output on both streams, and the exit code. */
export async function runExample(name: string): Promise<{ output: string; code: unknown }> {
  const child = spawn(process.execPath, ["--import", preloaded.href, `examples/${name}/main.ts`], {
    cwd: root,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const [code] = await once(child, "close");
  return { output, code };
}
