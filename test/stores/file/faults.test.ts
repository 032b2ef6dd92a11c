/** Processes are killed and stopped, and clocks are wrong. Fences only grow, held locks stay held, and an outage is never contention. */
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createLocks, systemClock } from "holdfast";
import { fileStore } from "holdfast/file";
import { afterAll, describe, expect, type TestContext, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { forkProgram } from "../../programs.ts";
import { processFaults } from "../fault-suite.ts";
import type { HolderMessage } from "../writing-holder.ts";
import { newFolder, testFolder } from "./folders.ts";
import { holderOf } from "./holder-of.ts";
import { killRounds } from "./kill-rounds.ts";
import { loneRounds } from "./lone-rounds.ts";
import { skipped } from "./mounts.ts";

function start(
  { onTestFinished }: TestContext,
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
) {
  const child = forkProgram(new URL(program, import.meta.url), args, { env: { ...process.env, ...env } });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

describe("file: faults", { timeout: 90_000 }, () => {
  test("processes that are killed at any moment lose no lock of others and no fence", async () => {
    const report = await killRounds({ folder: testFolder(), rounds: 7, held: 3, forMs: 5_000 });
    expect(report.faults).toEqual([]);
    expect(report.rounds).toBeGreaterThanOrEqual(7);
    expect(report.heldWhenKilled).toBeGreaterThanOrEqual(3);
    expect(report.grants).toBeGreaterThan(report.kills);
  });

  test("a folder whose processes were all killed keeps held locks, and no released ones", async () => {
    const report = await loneRounds({ folder: testFolder(), rounds: 5, held: 3 });
    expect(report.faults).toEqual([]);
    expect(report.rounds).toBeGreaterThanOrEqual(5);
    expect(report.heldWhenKilled).toBeGreaterThanOrEqual(3);
  });
});

describe("file: faults of processes", { timeout: 40_000 }, () => {
  const folder = newFolder();
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  processFaults({
    connect: ({ clock = systemClock } = {}) => ({ store: fileStore(folder), clock, end: () => {} }),
    holder: { store: "file", target: () => folder },
    stampsFences: true,
  });
});

// Each has a folder of its own, and waits most of the time.
describe.concurrent("file: more faults", { timeout: 90_000 }, () => {
  test.for([-3_600_000, 3_600_000])(
    "a process with a wall clock that is %i ms off neither ends nor takes a lease of others",
    async (byMs, context) => {
      const folder = testFolder(context);
      const locks = createLocks(fileStore(folder));
      const lease = await locks.mutex("paused", { ttlMs: 60_000 }).acquire();
      // By the environment, as that is for the thread of the store as well, which alone looks at the wall clock.
      const shift = encodeURI(`data:text/javascript,const now=Date.now;Date.now=()=>now()+(${byMs})`);
      const child = start(context, "../holder-process.ts", ["file", folder, "2000"], {
        NODE_OPTIONS: `--import ${shift}`,
      });
      const messages: HolderMessage[] = [];
      child.on("message", (message) => messages.push(message as HolderMessage));
      await until("the process waits", async () => (await locks.inspect("paused")).waitingCount === 1);
      expect(messages).toEqual([]);
      expect(lease.held).toBe(true);
      await lease.release();
      await until("the process holds", async () => messages.length > 0);
      expect(BigInt(messages[0]!.fence!)).toBeGreaterThan(lease.fence);
      await locks.close();
    },
  );

  test("a process that is stuck in a transaction is an outage for others, until it is killed", async (context) => {
    const folder = testFolder(context);
    const locks = createLocks(fileStore(folder, { requestTimeoutMs: 2_000 }), { requestTimeoutMs: 3_000 });
    const before = await locks.mutex("key").run(({ fence }) => fence);
    const child = start(context, "./stuck-process.ts", [folder]);
    await once(child, "message");
    // The thread of this program is not stopped, or the time that it allows would never end.
    await expect(locks.mutex("key").tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    child.kill("SIGKILL");
    const lease = await locks.mutex("key").acquire({ waitMs: 10_000 });
    expect(lease.fence).toBeGreaterThan(before);
    await locks.close();
  });
});

/** Whether this user may give processes numbers of their own, as containers do. */
const canNumber = spawnSync("unshare", ["-pf", "--mount-proc", "true"]).status === 0;
if (!canNumber) skipped("file: the test of processes with the same number", "this user may not unshare");

describe("file: containers", { timeout: 60_000 }, () => {
  test.skipIf(!canNumber)("processes of several containers may have the same number", async (context) => {
    const folder = testFolder(context);
    const take = (key: string) => holderOf(context, folder, key, ["unshare", "-pf", "--mount-proc"]);
    const first = await take("a");
    const second = await take("b");
    expect([first.said, second.said]).toEqual(["1 true\n", "1 true\n"]);
    const locks = createLocks(fileStore(folder));
    expect(await locks.mutex("a").tryAcquire()).toBeNull();
    expect(await locks.mutex("b").tryAcquire()).toBeNull();
    for (const { child } of [first, second]) {
      const exit = once(child, "exit");
      child.stdin.end();
      await exit;
    }
    expect(await locks.mutex("b").tryAcquire()).not.toBeNull();
    await locks.close();
  });
});

describe.concurrent("file: wake-ups", { timeout: 30_000 }, () => {
  test("the sockets of a killed process are removed by the next process that listens", async (context) => {
    const folder = testFolder(context);
    const child = start(context, "../holder-process.ts", ["file", folder, "1000"]);
    await once(child, "message");
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
    // A socket, and the link of its owner.
    const left = readdirSync(join(folder, "wake"));
    expect(left).toHaveLength(2);
    const locks = createLocks(fileStore(folder));
    await locks.mutex("paused").acquire({ waitMs: 10_000 });
    const names = () => readdirSync(join(folder, "wake"));
    await until("they are removed", async () => !names().some((name) => left.includes(name)));
    expect(names()).toHaveLength(2);
    await locks.close();
    expect(readdirSync(join(folder, "wake"))).toEqual([]);
  });

  test("a store that is closed right after a release still wakes the next holder", async (context) => {
    const folder = testFolder(context);
    const [leaving, staying] = [createLocks(fileStore(folder)), createLocks(fileStore(folder))];
    const lease = await leaving.mutex("key", { ttlMs: 60_000 }).acquire();
    const next = staying.mutex("key", { ttlMs: 60_000 }).acquire();
    await until("the other waits", async () => (await staying.inspect("key")).waitingCount === 1);
    await lease.release();
    await leaving.close();
    expect((await next).fence).toBeGreaterThan(lease.fence);
    await staying.close();
  });

  test("a folder whose path is too long for a socket wakes all the same", async (context) => {
    const folder = join(testFolder(context), "x".repeat(120));
    const [first, second] = [createLocks(fileStore(folder)), createLocks(fileStore(folder))];
    const lease = await first.mutex("key", { ttlMs: 60_000 }).acquire();
    const waiting = second.mutex("key", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    await until("the other waits", async () => (await first.inspect("key")).waitingCount === 1);
    await lease.release();
    expect((await waiting).fence).toBeGreaterThan(lease.fence);
    await Promise.all([first.close(), second.close()]);
  });
});
