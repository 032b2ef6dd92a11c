/** Runs an example as a reader would: against the built package, in a process of its own. */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const env = { ...process.env, TSX_TSCONFIG_PATH: "examples/tsconfig.json" };

export function buildPackage(): void {
  execFileSync(process.execPath, ["scripts/build.js"], { cwd: root });
}

/** What it printed and how it ended. */
export async function runExample(name: string): Promise<{ output: string; code: unknown }> {
  const child = spawn(process.execPath, ["--import", "tsx", `examples/${name}/main.ts`], {
    cwd: root,
    env,
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
