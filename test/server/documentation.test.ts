/** Every curl command in the documentation does what the page says that it does. */
import { execFile, execFileSync } from "node:child_process";
import { promisify } from "node:util";
import type { LockServer } from "holdfast/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canRun } from "../engines/program.ts";
import { read } from "../source-tree.ts";
import { startLockServer } from "./lock-server.ts";

const hasCurl = canRun("curl", () => execFileSync("curl", ["--version"]));

/** A command, and the answer that stands below it. */
interface Example {
  readonly command: string;
  readonly answer: unknown;
}

function examplesOf(page: string): Example[] {
  const pattern = /```sh\n(curl [^`]*)```\n\n```json\n([^`]*)```/g;
  return [...read(page).matchAll(pattern)].map(([, command = "", answer = ""]) => ({
    command,
    answer: JSON.parse(answer),
  }));
}

describe.skipIf(!hasCurl).each(["docs/server.md", "docs/protocol.md"])("%s", (page) => {
  let server: LockServer;
  beforeAll(async () => {
    server = await startLockServer();
  });
  afterAll(() => server.stop({ graceMs: 0 }));

  const examples = examplesOf(page);

  test("shows an answer below every command", () => {
    expect(examples).toHaveLength([...read(page).matchAll(/^curl /gm)].length);
    expect(examples.length).toBeGreaterThan(0);
  });

  // One after the other, as a reader would.
  test.each(examples)("$command", async ({ command, answer }) => {
    const here = command.replaceAll("http://localhost:7420", server.url);
    const { stdout } = await promisify(execFile)("sh", ["-c", here]);
    expect(JSON.parse(stdout)).toEqual(likeness(answer));
  });
});

/** Fields whose values differ each time need only have the same type. */
const volatile = new Set(["fence", "expiresInMs", "acquiredAtMs", "owner", "value"]);

function likeness(answer: unknown): unknown {
  if (Array.isArray(answer)) return answer.map(likeness);
  if (typeof answer !== "object" || answer === null) return answer;
  return Object.fromEntries(
    Object.entries(answer).map(([name, value]) => [
      name,
      volatile.has(name) ? expect.any(typeof value === "string" ? String : Number) : likeness(value),
    ]),
  );
}
