/**
 * `npm test`: installs, checks, builds, runs all tests but those of `npm run faults`, and prints how many passed.
 *
 * Later steps run even when a check failed, so that one run shows every problem.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { checkStyle, checkTypes, runVitest } from "./checks.js";
import { build, checkNode, install, step } from "./steps.js";

checkNode();
if (!(await install())) process.exit(1);

// The tidy test is a check as well; it is part of the whole run below.
const checked = [await checkTypes(), await checkStyle()].every(Boolean);
if (!(await build())) process.exit(1);

const folder = mkdtempSync(join(tmpdir(), "holdfast-test-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const report = join(folder, "report.json");
const args = ["--project=!faults", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
const tested = await step("tests (vitest)", () => runVitest([...args, ...process.argv.slice(2)]));

const { passed, failed, skipped } = countTests(report);
if (!checked) console.log("\nThe tests ran, but a check before them failed: see above.");
if (passed + failed === 0) console.log("\nNo test ran.");
console.log(`\n${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
process.exit(checked && tested && failed === 0 && passed > 0 ? 0 : 1);

/** Counts from vitest's own report. A file that failed outside its tests, as when it does not load, counts as one. */
function countTests(path) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const file of readReport(path)) {
    const statuses = file.assertionResults.map((test) => test.status);
    for (const status of statuses) {
      if (status === "passed" || status === "failed") counts[status]++;
      else counts.skipped++;
    }
    if (file.status === "failed" && !statuses.includes("failed")) counts.failed++;
  }
  return counts;
}

function readReport(path) {
  try {
    return JSON.parse(readFileSync(path, "utf8")).testResults;
  } catch (error) {
    console.log(`\nVitest wrote no report: ${error.message}`);
    return [];
  }
}
