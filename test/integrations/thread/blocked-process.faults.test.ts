/** Processes that block their event loop for longer than their leases live, on the engines themselves. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { createLocks, type Store } from "holdfast";
import { openStore } from "holdfast/open";
import { remoteStore } from "holdfast/remote";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import { canRunRedis, type RedisServer, startRedis, until } from "../../engines/redis.ts";
import { startLockServer } from "../../server/lock-server.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const program = fileURLToPath(new URL("./blocked-process.js", import.meta.url));

/** Long enough for a process to be silent for a while on a busy machine. */
const TTL_MS = 4_000;
const BLOCK_MS = 3 * TTL_MS;
/** How long what must come about may take: a process starts, its thread does, and it blocks. */
const PATIENCE_MS = 90_000;
const timeout = PATIENCE_MS + 30_000;

interface Told {
  readonly event: string;
  readonly [field: string]: unknown;
}

interface Blocked {
  readonly process: ChildProcess;
  readonly told: Told[];
  /** What it tells of an event, when it does. */
  tells(event: string): Promise<Told>;
  readonly ended: Promise<unknown[]>;
}

/** What a test that runs beside others says about its end. */
type Context = Pick<TestContext, "onTestFinished">;

function start({ onTestFinished }: Context, scenario: Record<string, unknown>): Blocked {
  const argument = JSON.stringify({ ttlMs: TTL_MS, blockMs: BLOCK_MS, end: "release", ...scenario });
  const child = spawn(process.execPath, [program, argument], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const told: Told[] = [];
  let output = "";
  let complaints = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaints += text;
  });
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    const lines = (output + text).split("\n");
    output = lines.pop() ?? "";
    told.push(...lines.map((line) => JSON.parse(line) as Told));
  });
  const ended = once(child, "close");
  const find = (event: string) => told.find((one) => one.event === event);
  return {
    process: child,
    told,
    ended,
    async tells(event) {
      await until(
        `the process tells ${event}`,
        async () => {
          if (child.exitCode !== null && find(event) === undefined) {
            throw new Error(`It ended without a word of "${event}": ${JSON.stringify(told)} ${complaints}`);
          }
          return find(event) !== undefined;
        },
        PATIENCE_MS,
      );
      return find(event)!;
    },
  };
}

/** Waits for the lock with a client of its own, and says when it got it. */
async function contend({ onTestFinished }: Context, store: Store) {
  const locks = createLocks(store);
  onTestFinished(() => locks.close());
  const lease = await locks.mutex("blocked", { ttlMs: 10_000 }).acquire();
  return { lease, atNs: process.hrtime.bigint() };
}

let redis: RedisServer | undefined;

beforeAll(async () => {
  if (canRunRedis()) redis = await startRedis();
}, 120_000);

afterAll(() => redis?.stop());

/** A database of its own on the server that the tests share. */
function redisUrl(database: number): string {
  return `redis://127.0.0.1:${redis?.port}/${database}`;
}

/** The lease survives, and nobody else gets in before it is given back. */
async function expectToKeepItsLease(context: Context, blocked: Blocked, store: Store): Promise<void> {
  const { fence } = await blocked.tells("held");
  const contending = contend(context, store);
  expect(await blocked.tells("unblocked")).toMatchObject({ held: true, fence });
  const { atNs } = await blocked.tells("releasing");
  expect(await blocked.tells("released")).toMatchObject({ held: true });
  const next = await contending;
  expect(next.atNs).toBeGreaterThan(BigInt(String(atNs)));
  expect(next.lease.fence).toBeGreaterThan(BigInt(String(fence)));
  await blocked.ended;
  const events = blocked.told.map(({ event }) => event);
  expect(events).toEqual(["held", "unblocked", "turned", "releasing", "released"]);
}

describe.concurrent("a body that blocks the event loop for three ttls", { timeout }, () => {
  test.skipIf(!canRunRedis())("keeps its lease in Redis, while it computes", async (context) => {
    const url = redisUrl(1);
    const blocked = start(context, { url, threadUrl: url, busy: true });
    await expectToKeepItsLease(context, blocked, await openStore(url));
  });

  // The thread learns of a lease before the promise of the acquire is resolved. Told two microtasks later, it would learn of
  // this one when the body no longer blocks.
  test("keeps a lease that it blocks for in the turn of its grant", async (context) => {
    const server = await startLockServer();
    context.onTestFinished(() => server.stop({ graceMs: 0 }));
    const url = server.url.replace(/^http:/, "holdfast:");
    const blocked = start(context, { url, threadUrl: url, atOnce: true });
    await expectToKeepItsLease(context, blocked, remoteStore(server.url));
  });

  test("keeps its lease on a lock server, by a module", async (context) => {
    const server = await startLockServer();
    context.onTestFinished(() => server.stop({ graceMs: 0 }));
    const blocked = start(context, { url: server.url, threadUrl: server.url, byModule: true });
    await expectToKeepItsLease(context, blocked, remoteStore(server.url));
  });

  test.skipIf(!canRunRedis())(
    "loses it without the thread, and says so before anything else",
    async (context) => {
      const url = redisUrl(2);
      const blocked = start(context, { url });
      const { fence } = await blocked.tells("held");
      const next = await contend(context, await openStore(url));
      const { reason, heldAtNs } = await blocked.tells("lost");
      expect(reason).toBe("expired");
      // It may not get to look for a while, but whenever it does, it is told no later than somebody else is granted the lock.
      expect(next.atNs).toBeGreaterThan(BigInt(String(heldAtNs)));
      expect(next.lease.fence).toBeGreaterThan(BigInt(String(fence)));
      expect(await blocked.tells("released")).toMatchObject({ held: false });
      const events = blocked.told.map(({ event }) => event);
      expect(events).toEqual(["held", "aborted", "lost", "unblocked", "turned", "releasing", "released"]);
    },
  );

  test.skipIf(!canRunRedis())(
    "keeps it through the death of the thread, by the next thread",
    async (context) => {
      const url = redisUrl(3);
      const blocked = start(context, { url, threadUrl: url, byModule: true, dies: true });
      expect(await blocked.tells("warning")).toMatchObject({ code: "THREAD_FAILED" });
      expect(await blocked.tells("revived")).toMatchObject({ starts: 2 });
      expect(await blocked.tells("unblocked")).toMatchObject({ held: true });
      expect(await blocked.tells("released")).toMatchObject({ held: true });
    },
  );
});

describe.concurrent("a body without end", { timeout }, () => {
  test.skipIf(!canRunRedis()).for([
    ["maxBlockedMs", 4, { maxBlockedMs: 2 * TTL_MS }, "blocked"],
    ["maxHoldMs", 5, { maxHoldMs: 2 * TTL_MS }, "max-hold"],
  ] as const)(
    "loses its lease at %s, and the next holder has a higher fence",
    async ([, database, limits, reason], context) => {
      const url = redisUrl(database);
      const blocked = start(context, { url, threadUrl: url, end: "loop", ...limits });
      const { fence } = await blocked.tells("held");
      const next = await contend(context, await openStore(url));
      expect(next.lease.fence).toBeGreaterThan(BigInt(String(fence)));
      expect(await blocked.tells("lost")).toMatchObject({ reason });
      expect(blocked.process.exitCode).toBeNull();
    },
  );
});

describe.concurrent("the thread", { timeout }, () => {
  test.skipIf(!canRunRedis())(
    "does not keep a process alive that has nothing else to do",
    async (context) => {
      const blocked = start(context, { url: "memory:", threadUrl: redisUrl(6), blockMs: 500, end: "leave" });
      await blocked.tells("leaving");
      expect(await blocked.ended).toEqual([0, null]);
    },
  );

  test.skipIf(!canRunRedis())("ends with its client, and so does its connection", async (context) => {
    const blocked = start(context, { url: "memory:", threadUrl: redisUrl(7), blockMs: 1_000, end: "close" });
    await blocked.tells("closed");
    await until("nobody is connected to that database", async () => {
      return !String(await redis?.command("CLIENT", "LIST")).includes(" db=7 ");
    });
    // It was over a store that does not know the lease, and said so.
    const { message } = await blocked.tells("warning");
    expect(message).toContain('does not know the lease on "blocked"');
  });
});
