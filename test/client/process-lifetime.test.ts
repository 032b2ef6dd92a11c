import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { compiled } from "../programs.ts";

const program = new URL("./idle-process.ts", import.meta.url);

/** What a process prints that ends by itself. Rejects when it does not, or when it ends with work undone. */
async function outputOf(what: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [compiled(program), what], {
    timeout: 15_000,
  });
  return stdout.trim();
}

describe.concurrent("process lifetime", () => {
  test("a process that holds a lease and has nothing else to do ends by itself", async () => {
    expect(await outputOf("holds")).toBe("holds");
  });

  test.each(["keeps a lease", "keeps a lease being won again", "watches a lease"])(
    "a process whose lease keeps it alive lives until that is lost: %s",
    async (what) => {
      expect(await outputOf(what)).toBe("max-hold");
    },
  );

  test.each(["runs", "leads"])(
    "a process with a body that only awaits its signal lives: %s",
    async (what) => {
      expect(await outputOf(what)).toBe("aborted");
    },
  );

  test("a process that waits for a lock lives until it is served", async () => {
    expect(await outputOf("waits")).toBe("served");
  });

  test("a process that asks a failing store again lives until it is answered", async () => {
    expect(await outputOf("asks")).toBe("served");
  });

  test("a process that releases on a failing store lives until that is done", async () => {
    expect(await outputOf("releases")).toBe("true");
  });

  test("a process that gives its leases grace lives until its client is closed", async () => {
    expect(await outputOf("closes")).toBe("closed");
  });

  test("a process with a schedule and nothing else to do ends by itself", async () => {
    expect(await outputOf("schedules")).toBe("schedules");
  });

  test("a process whose schedule keeps it alive lives until that is stopped", async () => {
    expect(await outputOf("keeps a schedule")).toBe("ran");
  });

  test("a process that campaigns lives until it has led and resigned", async () => {
    expect(await outputOf("campaigns")).toBe("led");
  });
});
