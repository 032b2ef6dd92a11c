/**
 * A real server is killed, paused, emptied and cut off while three clients take turns. Throughout: fences only grow, the store
 * has one holder, an outage is not contention, and all are served within about a heartbeat once the server is back.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Clock, createLocks, systemClock } from "holdfast";
import { migratePostgres, postgresStore } from "holdfast/postgres";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { cutReplyTo, cutRequest, type Rule, startProxy } from "../../engines/proxy.ts";
import { type Participant, Workers } from "../workers.ts";
import type { HolderMessage } from "../writing-holder.ts";

const ttlMs = 1_500;
/** A heartbeat, the claim of whoever held last, and what a busy machine and reconnecting take. */
const soonMs = ttlMs / 3 + ttlMs + 12_000;

describe.skipIf(!canRunPostgres())("postgres: faults", { timeout: 40_000 }, () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await startPostgres();
    const pool = poolOf();
    await migratePostgres(pool);
    await pool.end();
  }, 60_000);

  afterAll(() => server?.stop());

  function poolOf(port = server.port): Pool {
    const pool = new Pool({ connectionString: server.url.replace(`:${server.port}/`, `:${port}/`), max: 6 });
    // Connections of the pool that break while nobody uses them.
    pool.on("error", () => {});
    return pool;
  }

  async function connect(clock: Clock = systemClock): Promise<Participant> {
    const pool = poolOf();
    return { store: postgresStore(pool, { clock }), clock, end: () => pool.end() };
  }

  function threeWorkers(clocks: readonly (Clock | undefined)[] = [undefined, undefined, undefined]) {
    return Workers.start({ connects: clocks.map((clock) => () => connect(clock)), ttlMs });
  }

  function locksOver(port = server.port) {
    const pool = poolOf(port);
    const locks = createLocks(postgresStore(pool), { onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      await pool.end();
    });
    return locks;
  }

  test("a server that is killed serves all waiters when it is back", async () => {
    const workers = await threeWorkers();
    for (let round = 0; round < 2; round++) {
      await server.kill();
      await sleep(300);
      await server.restart();
      await workers.servesAll(soonMs);
    }
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("a lease and whoever waits for it outlive a kill of the server", async () => {
    const [holder, waiter] = [locksOver(), locksOver()];
    const lease = await holder.mutex("kept", { ttlMs: 20_000 }).acquire();
    const waiting = waiter.mutex("kept", { ttlMs: 20_000 }).acquire();
    await until("somebody waits", async () => (await holder.inspect("kept")).waitingCount === 1);
    await server.kill();
    await server.restart();
    await until("the lease is proven again", async () => {
      await lease.extend(20_000);
      return true;
    });
    expect(await holder.inspect("kept")).toMatchObject({ heldCount: 1, waitingCount: 1, fence: lease.fence });
    await lease.release();
    expect((await waiting).fence).toBeGreaterThan(lease.fence);
  });

  test("a server that is paused for longer than the ttl serves all waiters when it goes on", async () => {
    const workers = await threeWorkers();
    server.pause();
    await sleep(ttlMs + 500);
    server.resume();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("a server that has lost all records, as a failover can lose some, gives out no fence twice", async () => {
    const workers = await threeWorkers();
    const pool = poolOf();
    for (let round = 0; round < 3; round++) {
      await pool.query("truncate holdfast_locks");
      await workers.servesAll(soonMs);
    }
    await pool.end();
    await workers.stop();
  });

  test("wall clocks of clients that are wrong by an hour change nothing", async () => {
    const wrongBy = (ms: number): Clock => ({ ...systemClock, wallMs: () => systemClock.wallMs() + ms });
    const workers = await threeWorkers([wrongBy(-3_600_000), undefined, wrongBy(3_600_000)]);
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
    const inHalfAnHour = BigInt(Date.now() + 1_800_000) * 1_000n;
    const halfAnHourAgo = BigInt(Date.now() - 1_800_000) * 1_000n;
    expect(workers.fences.filter((fence) => fence > inHalfAnHour || fence < halfAnHourAgo)).toEqual([]);
  });

  test("a holder that was paused for longer than its ttl knows that it lost before it writes", async () => {
    const program = fileURLToPath(new URL("./holder-process.ts", import.meta.url));
    const child = fork(program, [server.url, `${ttlMs}`], { execArgv: ["--import", "tsx"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    const messages: HolderMessage[] = [];
    child.on("message", (message) => messages.push(message as HolderMessage));
    await until("the process writes", async () => messages.some(({ wrote }) => wrote !== undefined));

    child.kill("SIGSTOP");
    const next = await locksOver().mutex("paused").acquire({ waitMs: soonMs });
    const grantedMs = Date.now();
    const exit = once(child, "exit");
    child.kill("SIGCONT");
    await exit;

    expect(next.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(messages.filter(({ wrote = 0 }) => wrote >= grantedMs)).toEqual([]);
    expect(messages.at(-1)).toEqual({ lost: true });
  });

  // The function is called by no other statement.
  const cuts: readonly (readonly [string, Rule])[] = [
    ["after the server made it", cutReplyTo('holdfast_locks_swap_v1"(')],
    ["before all of it arrived", cutRequest('holdfast_locks_swap_v1"(', 60)],
  ];

  test.each(cuts)("a swap whose connection is cut %s makes one claim, and no second", async (when, rule) => {
    const proxy = await startProxy(server.port);
    onTestFinished(() => proxy.stop());
    const [near, far] = [locksOver(), locksOver(proxy.port)];
    // What is done at first use is done.
    await far.mutex("first use").run(() => {});
    let count = 0;
    proxy.decide((piece) => {
      const fate = rule(piece);
      if (fate !== "pass") count++;
      return fate;
    });
    const lease = await far.mutex(when, { ttlMs: 20_000 }).acquire();
    proxy.heal();
    expect(count).toBe(1);
    expect(await near.inspect(when)).toMatchObject({ heldCount: 1, waitingCount: 0, fence: lease.fence });
    expect(await near.mutex(when).tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
    const next = await near.mutex(when).acquire();
    expect(next.fence).toBeGreaterThan(lease.fence);
    await next.release();
  });
});
