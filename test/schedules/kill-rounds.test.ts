/** A short version of `npm run schedules`. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { killRounds } from "./kill-rounds.ts";

test("replicas with wrong clocks that are killed run each tick once", { timeout: 120_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-schedules-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const report = await killRounds({
    url: `file:${join(folder, "locks")}`,
    folder,
    ticks: 8,
    replicas: 3,
    killEveryMs: 3_000,
    takeover: false,
  });
  expect(report.faults).toEqual([]);
  expect(report.kills).toBeGreaterThan(0);
  expect(report.onceOnly + report.cutShort).toBe(8);
});
