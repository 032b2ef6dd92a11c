/** A short version of `npm run elections`. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { electionRounds } from "./kill-rounds.ts";

test("leaders that are killed or told to go are replaced, and never do two lead", {
  timeout: 120_000,
}, async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-elections-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const url = `file:${join(folder, "locks")}`;
  const report = await electionRounds({ url, folder, candidates: 3, ttlMs: 1_000, rounds: 2 });
  expect(report.faults).toEqual([]);
  expect(report.terms).toBeGreaterThanOrEqual(5);
  // Whoever is dead keeps the office until its ttl is over: not before two thirds of it, from its last heartbeat on.
  expect(Math.min(...report.crashes)).toBeGreaterThan(600);
});
