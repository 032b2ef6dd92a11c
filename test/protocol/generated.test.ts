/** What is made from the .proto files is as they say, and they themselves are as they should be. */
import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { checkBreaking } from "../../scripts/buf.js";
import { root } from "../source-tree.ts";

const script = fileURLToPath(new URL("../../scripts/protocol.js", import.meta.url));

test("the .proto files pass lint, break no earlier client, and match the code and the reference", async () => {
  const { stderr } = await promisify(execFile)(process.execPath, [script, "--check"]);
  expect(stderr).toBe("");
}, 120_000);

const session = "proto/holdfast/v1/session.proto";

/** The .proto files with one change. */
function changed(path: string, from: string, to: string): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-breaking-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  cpSync(join(root, "proto"), join(folder, "proto"), { recursive: true });
  cpSync(join(root, "buf.yaml"), join(folder, "buf.yaml"));
  const text = readFileSync(join(folder, path), "utf8");
  expect(text).toContain(from);
  writeFileSync(join(folder, path), text.replace(from, to));
  return folder;
}

test("a change that would break clients of the last release is noticed, and one that would not is not", () => {
  expect(() => checkBreaking(changed(session, "string agent = 2;", "string agent = 7;"))).toThrow(/agent/);
  expect(() => checkBreaking(changed(session, "string agent = 2;", "uint32 agent = 2;"))).toThrow(/agent/);
  expect(() => checkBreaking(changed(session, "string agent = 2;", ""))).toThrow(/"2"/);
  const added = "string agent = 2;\n  // For people: where the client runs.\n  string host = 3;";
  expect(() => checkBreaking(changed(session, "string agent = 2;", added))).not.toThrow();
}, 60_000);
