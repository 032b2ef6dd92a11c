/** What is made from the .proto files is as they say, and they themselves are as they should be. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const script = fileURLToPath(new URL("../../scripts/protocol.js", import.meta.url));

test("the .proto files pass lint, break no earlier client, and match the code and the reference", async () => {
  const { stderr } = await promisify(execFile)(process.execPath, [script, "--check"]);
  expect(stderr).toBe("");
}, 120_000);
