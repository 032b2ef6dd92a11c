/** The shell job: several machines start it at once, and one does it. */
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { memoryStore } from "holdfast";
import type { LockServer } from "holdfast/server";
import { beforeAll, expect, test } from "vitest";
import { atEnd, binFolder, cleanEnv, temporaryFolder } from "../cli/command.ts";
import { startLockServer } from "../server/lock-server.ts";
import { root } from "../source-tree.ts";

let server: LockServer;
beforeAll(async () => {
  server = await startLockServer({ store: memoryStore() });
  atEnd(() => server.stop({ graceMs: 0 }));
}, 120_000);

interface Machine {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the cron job of one machine. */
function runCron(folder: string, env: NodeJS.ProcessEnv = {}): Promise<Machine> {
  const all = cleanEnv({
    PATH: `${binFolder(temporaryFolder())}:${process.env["PATH"]}`,
    HOLDFAST_SERVER: server.url,
    REPORT_DIR: folder,
    REPORT_SECONDS: "2",
    ...env,
  });
  return new Promise((resolve) => {
    execFile("sh", [join(root, "examples/shell-job/cron.sh")], { env: all }, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === "number" ? error.code : 0, stdout, stderr });
    });
  });
}

test("of three machines one writes the report, and the others are content", async () => {
  const folder = temporaryFolder();
  const machines = await Promise.all([1, 2, 3].map(() => runCron(folder)));
  expect(machines.map(({ code }) => code)).toEqual([0, 0, 0]);
  const said = machines.map(({ stdout }) => stdout).sort();
  expect(said).toEqual([
    "another machine is at it\n",
    "another machine is at it\n",
    "the report is written\n",
  ]);
  expect(readFileSync(join(folder, "report"), "utf8")).toMatch(/^written under fence \d+\n$/);
  expect(readdirSync(folder).sort()).toEqual([".fence", ".fence.lock", "report"]);
});

test("a report under an older fence does not replace a newer one", async () => {
  const folder = temporaryFolder();
  const report = (fence: string) =>
    new Promise<number>((resolve) => {
      const env = cleanEnv({ HOLDFAST_FENCE: fence, REPORT_DIR: folder, REPORT_SECONDS: "0" });
      const child = execFile("sh", [join(root, "examples/shell-job/report.sh")], { env });
      child.once("close", (code) => resolve(code ?? -1));
    });
  expect(await report("1794776596367343")).toBe(0);
  expect(await report("1794776593698527")).toBe(1);
  expect(readFileSync(join(folder, "report"), "utf8")).toBe("written under fence 1794776596367343\n");
});

test("without a lock server nobody runs, and cron is told", async () => {
  const folder = temporaryFolder();
  const { code, stderr } = await runCron(folder, { HOLDFAST_SERVER: "127.0.0.1:1" });
  expect(code).toBe(69);
  expect(stderr).toContain("nobody ran");
  expect(readdirSync(folder)).toEqual([]);
});
