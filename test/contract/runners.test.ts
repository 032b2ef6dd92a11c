import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

test("the contract suite runs under node:test as well", async () => {
  const file = fileURLToPath(new URL("./node-test-runner.ts", import.meta.url));
  const args = ["--import", "tsx", "--test", "--test-reporter", "tap", file];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  expect(stdout).toMatch(/^# fail 0$/m);
  expect(stdout).toMatch(/^# skipped 1$/m);
  expect(Number(/^# pass (\d+)$/m.exec(stdout)?.[1])).toBeGreaterThan(100);
});
