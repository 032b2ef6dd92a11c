import { expect, test } from "vitest";
import { runExample } from "./example.ts";

/** The lines that it prints. Fails unless it ends well. */
async function run(name: string): Promise<string[]> {
  const { output, code } = await runExample(name);
  expect(code, output).toBe(0);
  return output.trimEnd().split("\n");
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
