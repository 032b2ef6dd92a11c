import { execFile, execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

beforeAll(() => {
  execFileSync(process.execPath, ["scripts/build.js"], { cwd: root });
}, 120_000);

/** Runs an example as people do: against the built package. */
async function run(example: string): Promise<string[]> {
  const { stdout, stderr } = await promisify(execFile)(
    process.execPath,
    ["--import", "tsx", `examples/${example}/main.ts`],
    { cwd: root, env: { ...process.env, TSX_TSCONFIG_PATH: "examples/tsconfig.json" } },
  );
  expect(stderr).toBe("");
  return stdout.trimEnd().split("\n");
}

test("the nestjs example runs withdrawals one by one, skips a second report, and closes cleanly", async () => {
  expect(await run("nestjs")).toEqual([
    "five withdrawals at once: 90, 80, 70, 60, 50",
    "two reports at once: reported, skipped",
    "granted 6, released 6, lost 0",
  ]);
}, 60_000);

test("the fastify example sells what there is, answers 423 while locked, and closes cleanly", async () => {
  expect(await run("fastify")).toEqual([
    "five orders of three chairs: 3 ordered, 0 left",
    "inventory while it is locked: 423",
    "inventory after that: 200",
    "granted 7, released 7, lost 0",
  ]);
}, 60_000);
