/**
 * A real server gets killed, paused and cut off while workers take turns. Throughout: fences only grow, the store never has
 * two holders, an outage is never contention, and everybody is served soon after the server is back.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Clock, createLocks, systemClock } from "holdfast";
import { mongodbStore } from "holdfast/mongodb";
import { MongoClient } from "mongodb6";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunMongodb, type MongodbServer, startMongodb } from "../../engines/mongodb.ts";
import { cutReplyTo, cutRequest, type NetworkProxy, startProxy } from "../../engines/proxy.ts";
import { type Participant, Workers } from "../workers.ts";
import type { HolderMessage } from "../writing-holder.ts";

const ttlMs = 1_500;
/** A heartbeat, the claim of whoever held last, and what a busy machine and reconnecting take. */
const soonMs = ttlMs / 3 + ttlMs + 12_000;

describe.skipIf(!(await canRunMongodb()))("mongodb: faults", { timeout: 40_000 }, () => {
  let server: MongodbServer;

  beforeAll(async () => {
    server = await startMongodb();
  }, 60_000);
  afterAll(() => server?.stop());

  async function connect(url = server.url, clock: Clock = systemClock): Promise<Participant> {
    const client = new MongoClient(url, { serverSelectionTimeoutMS: 2_000 });
    const store = mongodbStore(client.db("faults"), { maxPollMs: 100, clock });
    return { store, clock, end: () => client.close() };
  }

  async function locksOf(context: TestContext, url = server.url) {
    const { store, end } = await connect(url);
    const locks = createLocks(store, { onWarning: () => {} });
    context.onTestFinished(async () => {
      await locks.close();
      await end();
    });
    return locks;
  }

  test("a server that is killed serves all waiters when it is back", async () => {
    const workers = await Workers.start({
      connects: [connect, connect, connect].map((open) => () => open()),
      ttlMs,
    });
    await server.kill();
    await sleep(300);
    await server.restart();
    await workers.servesAll(soonMs);
    await workers.stop();
    // The stand-in for MongoDB may forget the last second, and with it who held the lock.
    if (server.isMongod) expect(workers.overlaps).toBe(0);
  });

  test("a lease and its waiters outlive a kill of the server, once they are on its disk", async (context) => {
    const [holder, waiter] = [await locksOf(context), await locksOf(context)];
    const lease = await holder.mutex("kept", { ttlMs: 20_000 }).acquire();
    const waiting = waiter.mutex("kept", { ttlMs: 20_000 }).acquire();
    await until("somebody waits", async () => (await holder.inspect("kept")).waitingCount === 1);
    // What the stand-in takes to write to its disk.
    await sleep(server.isMongod ? 0 : 1_500);
    await server.kill();
    await server.restart();
    await until("the lease is proven again", async () => {
      await lease.extend(20_000);
      return true;
    });
    expect(await holder.inspect("kept")).toMatchObject({ heldCount: 1, waitingCount: 1, fence: lease.fence });
    await lease.release();
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lease.fence);
    await next.release();
  });

  test("a server that is paused for longer than the ttl serves all waiters when it goes on", async () => {
    const workers = await Workers.start({
      connects: [connect, connect, connect].map((open) => () => open()),
      ttlMs,
    });
    server.pause();
    await sleep(ttlMs + 500);
    server.resume();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("clocks that are wrong by an hour on the machines of clients change nothing", async () => {
    const wrongBy = (ms: number): Clock => ({
      monotonicMs: () => systemClock.monotonicMs(),
      wallMs: () => systemClock.wallMs() + ms,
      setTimer: (delayMs, callback) => systemClock.setTimer(delayMs, callback),
    });
    const connects = [-3_600_000, 0, 3_600_000].map((ms) => () => connect(server.url, wrongBy(ms)));
    const workers = await Workers.start({ connects, ttlMs });
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
    const hourAheadUs = BigInt(Date.now() + 1_800_000) * 1_000n;
    expect(workers.fences.filter((fence) => fence > hourAheadUs)).toEqual([]);
  });

  test("a holder that was paused for longer than its ttl knows that it lost before it writes", async (context) => {
    const program = fileURLToPath(new URL("./holder-process.ts", import.meta.url));
    const child = fork(program, [server.url, `${ttlMs}`], { execArgv: ["--import", "tsx"] });
    context.onTestFinished(() => void child.kill("SIGKILL"));
    const messages: HolderMessage[] = [];
    child.on("message", (message) => messages.push(message as HolderMessage));
    await until("the process writes", async () => messages.some(({ wrote }) => wrote !== undefined));

    child.kill("SIGSTOP");
    const locks = await locksOf(context);
    const next = await locks.mutex("paused").acquire({ waitMs: soonMs });
    const grantedMs = Date.now();
    const exit = once(child, "exit");
    child.kill("SIGCONT");
    await exit;

    expect(next.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(messages.filter(({ wrote = 0 }) => wrote >= grantedMs)).toEqual([]);
    expect(messages.at(-1)).toEqual({ lost: true });
  });

  describe("a connection that is cut in the middle of a swap", () => {
    let proxy: NetworkProxy;

    beforeAll(async () => {
      proxy = await startProxy(server.port);
    });
    afterAll(() => proxy?.stop());

    // What a swap contains and no other request does.
    const swapOf = "keepUntil";

    test.for([
      ["after the server made it", cutReplyTo(swapOf)],
      ["before all of it arrived", cutRequest(swapOf, 100)],
    ] as const)("%s makes one claim, and no second", async ([, rule], context) => {
      const near = await locksOf(context);
      const far = await locksOf(context, server.url.replace(`:${server.port}`, `:${proxy.port}`));
      const key = `cut ${context.task.name}`;
      // The first use, and with it the index, is over.
      await far.inspect(key);
      let cuts = 0;
      proxy.decide((piece) => {
        const fate = rule(piece);
        if (fate !== "pass") cuts++;
        return fate;
      });
      const lease = await far.mutex(key, { ttlMs: 20_000 }).acquire();
      proxy.heal();
      expect(cuts).toBeGreaterThan(0);
      expect(await near.inspect(key)).toMatchObject({ heldCount: 1, waitingCount: 0, fence: lease.fence });
      expect(await near.mutex(key).tryAcquire()).toBeNull();
      expect(await lease.release()).toBe(true);
      const next = await near.mutex(key).acquire();
      expect(next.fence).toBeGreaterThan(lease.fence);
      await next.release();
    });
  });
});
