/**
 * A command is dead before anybody else can be granted its lock, whatever happens to the store or to `holdfast run`. Judged by
 * the store: somebody else waits for the lock all the while, and when it is granted, the command must be gone.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createLocks, type Locks } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { beforeAll, describe, expect, test } from "vitest";
import { isRunning } from "../engines/engine.ts";
import { silence, startProxy } from "../engines/proxy.ts";
import { canRunRedis, type RedisServer, startRedis } from "../engines/redis.ts";
import { atEnd, binFolder, type Running, start, temporaryFolder, until } from "./command.ts";

/** A margin for busy machines, and not the whole five seconds for a release that nobody will answer. */
const TTL = ["--ttl", "4s", "--kill-after", "500ms", "--margin", "1s", "--timeout", "1s"];

/** A command that ignores SIGTERM and logs the time while it lives. */
const stubborn = 'trap "" TERM INT; echo $$; while :; do date +%s.%N >> "$1"; sleep 0.02; done';

describe.skipIf(!canRunRedis())("a lease that ends", () => {
  let redis: RedisServer;
  let locks: Locks;

  beforeAll(async () => {
    redis = await startRedis();
    const client = new Redis(redis.port, "127.0.0.1");
    client.on("error", () => {});
    locks = createLocks(redisStore(client));
    atEnd(async () => {
      await locks.close();
      client.disconnect();
      await redis.stop();
    });
  }, 120_000);

  /** The command, running, through a network of its own. */
  async function startStubborn(key: string, ...options: string[]) {
    const proxy = await startProxy(redis.port);
    atEnd(() => proxy.stop());
    const file = join(temporaryFolder(), "alive");
    const store = ["--store", `redis://127.0.0.1:${proxy.port}`];
    const running = start(["run", key, ...TTL, ...store, ...options, "--", "sh", "-c", stubborn, "sh", file]);
    await until("the command runs", () => /^\d+\n/.test(running.stdout()));
    const child = Number(running.stdout());
    atEnd(() => kill(child, file));
    return { proxy, running, child, file };
  }

  /** Waits for the lock like another machine. At its grant the command must be dead. */
  async function expectDeadAtGrant(
    key: string,
    { child, file }: { child: number; file: string },
  ): Promise<void> {
    const lease = await locks.mutex(key, { ttlMs: 10_000 }).acquire();
    const alive = isRunning(child);
    const grantedAt = await locks.inspect(key);
    expect(alive, "the command lives although somebody else has the lock").toBe(false);
    const last = Number(readFileSync(file, "utf8").trim().split("\n").at(-1));
    // Both are clocks of this machine.
    expect(last * 1_000).toBeLessThan(grantedAt.held[0]!.acquiredAtMs!);
    await lease.release();
  }

  async function expectLost(running: Running): Promise<void> {
    const { code, stderr } = await running.ended;
    expect({ code, stderr }).toEqual({ code: 79, stderr: expect.stringMatching(/^holdfast: /) });
  }

  test.concurrent("because the network is cut: the command is dead before the next is granted the lock", async () => {
    const job = await startStubborn("cut");
    job.proxy.decide(silence);
    await expectDeadAtGrant("cut", job);
    await expectLost(job.running);
    expect(job.running.stderr()).toContain('the lease on "cut" is about to end. Stopping the command.');
  });

  test.concurrent("because we are stopped for longer than the ttl: the watchdog has killed it in time", async () => {
    const job = await startStubborn("paused");
    job.running.kill("SIGSTOP");
    await expectDeadAtGrant("paused", job);
    job.running.kill("SIGCONT");
    await expectLost(job.running);
    expect(job.running.stderr()).toContain("LEASE_LOST");
  });

  test.concurrent("because we are killed: so is the command, at once", async () => {
    const job = await startStubborn("killed");
    job.running.kill("SIGKILL");
    await expectDeadAtGrant("killed", job);
    expect(await job.running.ended).toMatchObject({ signal: "SIGKILL" });
  });

  test.concurrent("because we are killed after the watchdog was: another one has taken its place", async () => {
    const job = await startStubborn("unguarded");
    const [first] = watchdogsOf(job.running.pid) as [number];
    // The shell that sleeps for it is left over, and would kill the command in spite of all renewals.
    process.kill(first, "SIGKILL");
    await until("there is another watchdog, and nothing is left of the first", () => {
      const [next] = watchdogsOf(job.running.pid);
      return next !== undefined && next !== first && groupOf(first).length === 0;
    });
    expect(isRunning(job.child)).toBe(true);
    // As a service manager does, which stops every process of a service.
    const [second] = watchdogsOf(job.running.pid) as [number];
    process.kill(-second, "SIGTERM");
    await until("there is a third, and it has been told how long the lease is good", () => {
      const [third] = watchdogsOf(job.running.pid);
      return third !== undefined && third !== second && groupOf(third).length > 1;
    });
    job.running.kill("SIGKILL");
    await until("the command is gone", () => !isRunning(job.child));
    await expectDeadAtGrant("unguarded", job);
  });

  test.concurrent("but not because a signal ends the watchdog's sleep, as that of a whole service may", async () => {
    const job = await startStubborn("sleepless");
    const [watchdog] = watchdogsOf(job.running.pid) as [number];
    const sleeps = () => groupOf(watchdog).filter((pid) => commandOf(pid).startsWith("sleep"));
    await until("it sleeps", () => sleeps().length > 0);
    const alarms = groupOf(watchdog).filter((pid) => pid !== watchdog);
    for (const pid of sleeps()) process.kill(pid, "SIGTERM");
    await until("the alarm is over", () => !alarms.some(isRunning));
    expect(isRunning(job.child)).toBe(true);
    job.running.kill("SIGKILL");
    await until("the command is gone", () => !isRunning(job.child));
  });

  test.concurrent("because somebody released it by force: it is killed at the next heartbeat", async () => {
    const job = await startStubborn("forced");
    const { held } = await locks.inspect("forced");
    expect(await locks.forceRelease("forced", held[0]!.id)).toBe(true);
    await expectLost(job.running);
    expect(job.running.stderr()).toContain("released by force");
    expect(isRunning(job.child)).toBe(false);
  });

  test.concurrent("because it was held for --max-hold: it is stopped by then", async () => {
    const job = await startStubborn("capped", "--max-hold", "3s");
    await expectDeadAtGrant("capped", job);
    await expectLost(job.running);
  });

  test.concurrent("an obedient command has the time from SIGTERM to SIGKILL to end", async () => {
    const proxy = await startProxy(redis.port);
    atEnd(() => proxy.stop());
    const store = ["--store", `redis://127.0.0.1:${proxy.port}`];
    const script = 'trap "echo tidied up; exit 0" TERM; echo ready; while :; do sleep 0.05; done';
    const running = start(["run", "obedient", ...TTL, ...store, "--", "sh", "-c", script]);
    await until("it runs", () => running.stdout() === "ready\n");
    proxy.decide(silence);
    expect(await running.ended).toMatchObject({ code: 79, stdout: "ready\ntidied up\n" });
  });

  test.concurrent("what the command has started dies with it", async () => {
    const proxy = await startProxy(redis.port);
    atEnd(() => proxy.stop());
    const store = ["--store", `redis://127.0.0.1:${proxy.port}`];
    const script = `sh -c '${stubborn.replace(/date.*?; /, "")}' & trap "exit 0" TERM; wait; sleep 60`;
    const running = start(["run", "family", ...TTL, ...store, "--", "sh", "-c", script]);
    await until("it runs", () => /^\d+\n/.test(running.stdout()));
    const grandchild = Number(running.stdout());
    proxy.decide(silence);
    await expectLost(running);
    await until("the grandchild is gone", () => !isRunning(grandchild));
  });

  test.concurrent("a hiccup of the store that is shorter stops nothing", async () => {
    const proxy = await startProxy(redis.port);
    atEnd(() => proxy.stop());
    const store = ["--store", `redis://127.0.0.1:${proxy.port}`];
    const running = start([
      "run",
      "hiccup",
      "--ttl",
      "6s",
      ...store,
      "--",
      "sh",
      "-c",
      "echo ready; sleep 5",
    ]);
    await until("it runs", () => running.stdout() === "ready\n");
    // A heartbeat is due after 2 s, and would be repeated until SIGTERM after 3.7 s.
    await new Promise((resolve) => setTimeout(resolve, 1_800));
    proxy.cut();
    expect(await running.ended).toMatchObject({ code: 0, stderr: "" });
  });

  test.concurrent("a lock within a lock: when the outer one is killed, nothing goes on below", async () => {
    const store = ["--store", `redis://127.0.0.1:${redis.port}`];
    const file = join(temporaryFolder(), "alive");
    const bin = binFolder(temporaryFolder());
    const running = start(
      [
        "run",
        "outer",
        ...TTL,
        ...store,
        "--",
        "holdfast",
        "run",
        "inner",
        ...TTL,
        ...store,
        "--",
        "sh",
        "-c",
        stubborn,
        "sh",
        file,
      ],
      { env: { PATH: `${bin}:${process.env["PATH"]}` } },
    );
    await until("it runs", () => /^\d+\n/.test(running.stdout()));
    const child = Number(running.stdout());
    atEnd(() => kill(child, file));
    running.kill("SIGKILL");
    await until("all of it is gone", () => !isRunning(child));
  });
});

/** The fields of /proc/<pid>/stat after the name, of all processes that there are: state, parent, group, … */
function processes(): { pid: number; fields: readonly string[] }[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, "utf8");
        return [{ pid: Number(name), fields: stat.slice(stat.lastIndexOf(")") + 2).split(" ") }];
      } catch {
        return [];
      }
    });
}

function groupOf(leader: number): number[] {
  return processes().flatMap(({ pid, fields: [state, , group] }) =>
    Number(group) === leader && state !== "Z" ? [pid] : [],
  );
}

function watchdogsOf(parent: number): number[] {
  const children = processes().filter(
    ({ fields: [state, ppid] }) => Number(ppid) === parent && state !== "Z",
  );
  return children.map(({ pid }) => pid).filter((pid) => commandOf(pid).includes("holdfast-watchdog"));
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

/** Ends what should be gone. Its number may be somebody else's by then, so it is recognised by the file that it writes. */
function kill(pid: number, file: string): void {
  try {
    if (readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(file)) process.kill(-pid, "SIGKILL");
  } catch {
    // It is gone, as it should be.
  }
}
