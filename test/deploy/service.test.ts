/** The unit for systemd. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { read } from "../source-tree.ts";

const unit = read("deploy/holdfast.service");

/** The complaints of systemd about a unit. */
function complaintsOf(text: string): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-unit-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "holdfast.service");
  // The program need not be installed here.
  writeFileSync(path, text.replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`));
  const { status, stderr } = spawnSync("systemd-analyze", ["verify", "--man=no", path], { encoding: "utf8" });
  return `${status === 0 ? "" : `status ${status} `}${stderr}`;
}

const hasSystemd = spawnSync("systemd-analyze", ["--version"]).error === undefined;

test.skipIf(!hasSystemd)("systemd accepts it", () => {
  expect(complaintsOf(unit)).toBe("");
  expect(complaintsOf(unit.replace("ProtectHome=yes", "ProtectHome=perhaps"))).toContain("perhaps");
});

test("the server runs with few rights, time to drain, and room for connections", () => {
  const settings = new Map(
    [...unit.matchAll(/^(\w+)=(.*)$/gm)].map(([, name = "", value = ""]) => [name, value]),
  );
  expect(settings.get("ExecStart")).toMatch(/^\/usr\/bin\/holdfast serve /);
  expect(settings.get("CapabilityBoundingSet")).toBe("");
  expect(settings.get("ProtectSystem")).toBe("strict");
  expect(settings.get("DynamicUser")).toBe("yes");
  // A stop takes up to 10 s, and each of the 10,000 connections of the default limits is a file.
  expect(Number(settings.get("TimeoutStopSec"))).toBeGreaterThan(10);
  expect(Number(settings.get("LimitNOFILE"))).toBeGreaterThan(10_000);
});
