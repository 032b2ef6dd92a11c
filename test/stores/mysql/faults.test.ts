/**
 * A real server gets killed, paused and cut off while workers take turns. Throughout: fences only grow, the store never has
 * two holders, an outage is never contention, everybody is served soon after the server is back, and nothing is
 * unhandled, which the test runner watches.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Clock, createLocks, type Locks, systemClock } from "holdfast";
import { describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { cutReplyTo, cutRequest, type NetworkProxy, startProxy } from "../../engines/proxy.ts";
import { Workers } from "../workers.ts";
import type { HolderMessage } from "../writing-holder.ts";
import { useDatabase } from "./database.ts";

const ttlMs = 1_500;
/** A heartbeat, the claim of whoever held last, and what a busy machine and reconnecting take. */
const soonMs = ttlMs / 3 + ttlMs + 12_000;

/** What a swap contains, and no other request. */
const SWAP = "_swap_v1";

describe.skipIf(!canRunMariadb())("mysql: faults", { timeout: 40_000 }, () => {
  const database = useDatabase();

  function startWorkers(
    clocks: readonly Clock[] = [systemClock, systemClock, systemClock],
  ): Promise<Workers> {
    const connects = clocks.map((clock) => async () => database.participant(undefined, clock));
    return Workers.start({ connects, ttlMs });
  }

  function locksAt(url = database.server.url): Locks {
    const { store, end } = database.participant(url);
    const locks = createLocks(store, { onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      await end();
    });
    return locks;
  }

  async function proxied(): Promise<{ proxy: NetworkProxy; locks: Locks }> {
    const { server } = database;
    const proxy = await startProxy(server.port);
    onTestFinished(() => proxy.stop());
    return { proxy, locks: locksAt(server.url.replace(`:${server.port}`, `:${proxy.port}`)) };
  }

  test("a server that is killed serves all waiters when it is back, and has forgotten nothing", async () => {
    const workers = await startWorkers();
    const [holder, waiter] = [locksAt(), locksAt()];
    const lease = await holder.mutex("kept", { ttlMs: 20_000 }).acquire();
    const waiting = waiter.mutex("kept", { ttlMs: 20_000 }).acquire();
    await until("somebody waits", async () => (await holder.inspect("kept")).waitingCount === 1);

    await database.server.kill();
    await sleep(300);
    await database.server.restart();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);

    expect(await holder.inspect("kept")).toMatchObject({ heldCount: 1, waitingCount: 1, fence: lease.fence });
    expect(lease.held).toBe(true);
    await lease.release();
    expect((await waiting).fence).toBeGreaterThan(lease.fence);
  });

  test("a server that is paused for longer than the ttl serves all waiters when it goes on", async () => {
    const workers = await startWorkers();
    database.server.pause();
    await sleep(ttlMs + 500);
    database.server.resume();
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
    const workers = await startWorkers([wrongBy(-3_600_000), systemClock, wrongBy(3_600_000)]);
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
    const [first, last] = [workers.fences[0]!, workers.fences.at(-1)!];
    expect(last - first).toBeLessThan(1_800_000_000n);
  });

  test("a holder that was paused for longer than its ttl knows that it lost before it writes", async () => {
    const program = fileURLToPath(new URL("./holder-process.ts", import.meta.url));
    const child = fork(program, [database.server.url, `${ttlMs}`], { execArgv: ["--import", "tsx"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    const messages: HolderMessage[] = [];
    child.on("message", (message) => messages.push(message as HolderMessage));
    await until("the process writes", async () => messages.some(({ wrote }) => wrote !== undefined));

    child.kill("SIGSTOP");
    const next = await locksAt().mutex("paused").acquire({ waitMs: soonMs });
    const grantedMs = Date.now();
    const exit = once(child, "exit");
    child.kill("SIGCONT");
    await exit;

    expect(next.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(messages.filter(({ wrote = 0 }) => wrote >= grantedMs)).toEqual([]);
    expect(messages.at(-1)).toEqual({ lost: true });
  });

  test.for([
    ["after the server made it", () => cutReplyTo(SWAP)],
    ["before all of it arrived", () => cutRequest(SWAP, 100)],
  ] as const)("a connection that is cut %s makes one claim, and no second", async ([name, newRule]) => {
    const near = locksAt();
    const { proxy, locks: far } = await proxied();
    const key = `cut ${name}`;
    await far.inspect(key);
    const rule = newRule();
    let cuts = 0;
    proxy.decide((piece) => {
      const fate = rule(piece);
      if (fate !== "pass") cuts++;
      return fate;
    });
    const lease = await far.mutex(key, { ttlMs: 20_000 }).acquire();
    expect(cuts).toBe(1);
    proxy.heal();
    expect(await near.inspect(key)).toMatchObject({ heldCount: 1, waitingCount: 0, fence: lease.fence });
    expect(await near.mutex(key).tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
    expect((await near.mutex(key).acquire()).fence).toBeGreaterThan(lease.fence);
  });

  test("a network that falls silent is an outage, and the connection that it leaves without an answer is replaced", async () => {
    const { server } = database;
    const proxy = await startProxy(server.port);
    onTestFinished(() => proxy.stop());
    const uri = server.url.replace(`:${server.port}`, `:${proxy.port}`);
    const store = database.store(database.pool({ uri, connectionLimit: 1, connectTimeout: 1_000 }), {
      flightMs: 1_000,
    });
    const mutex = createLocks(store, { requestTimeoutMs: 2_000 }).mutex("silent");
    await (await mutex.acquire()).release();

    const silent = new Set<unknown>();
    proxy.decide(({ connection }) => {
      silent.add(connection);
      return "hold";
    });
    await expect(mutex.tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(silent.size).toBeGreaterThan(0);
    proxy.decide(({ connection }) => (silent.has(connection) ? "hold" : "pass"));
    await until("another connection serves", async () => {
      const lease = await mutex.tryAcquire();
      return lease?.release() ?? false;
    });
  });
});
