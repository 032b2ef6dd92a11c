/**
 * A real server gets killed, paused and cut off while workers take turns. Throughout: fences only grow, the store never has
 * two holders, an outage is never contention, everybody is served soon after the server is back, and nothing is
 * unhandled, which the test runner watches.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Clock, createLocks, systemClock } from "holdfast";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { claimRequest } from "../../core/claim-request.ts";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { cutReplyTo, cutRequest, type NetworkProxy, type Piece, startProxy } from "../../engines/proxy.ts";
import { Workers } from "../workers.ts";
import type { HolderMessage } from "../writing-holder.ts";
import { locksAt, participant, wrongBy } from "./participants.ts";

const ttlMs = 1_500;
/** The lease behind it is one of 2 s, and etcd looks for leases that are over twice a second. */
const leaseMs = 2_500;
/** A heartbeat, the claim of whoever held last, and what a busy machine and reconnecting take. */
const soonMs = ttlMs / 3 + leaseMs + 12_000;

describe.skipIf(!canRunEtcd())("etcd: faults", { timeout: 40_000 }, () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd();
  }, 60_000);
  afterAll(() => server.stop());

  function startWorkers(
    clocks: readonly Clock[] = [systemClock, systemClock, systemClock],
  ): Promise<Workers> {
    const connects = clocks.map((clock) => async () => participant(server.url, { flightMs: 1_000 }, clock));
    return Workers.start({ connects, ttlMs });
  }

  async function proxied(): Promise<{ proxy: NetworkProxy; url: string }> {
    const proxy = await startProxy(server.port);
    onTestFinished(() => proxy.stop());
    return { proxy, url: `http://127.0.0.1:${proxy.port}` };
  }

  /** A process that holds the lock "paused". */
  async function startHolder(): Promise<{ child: ChildProcess; messages: HolderMessage[] }> {
    const program = fileURLToPath(new URL("./holder-process.ts", import.meta.url));
    const child = fork(program, [server.url, `${ttlMs}`], { execArgv: ["--import", "tsx"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    const messages: HolderMessage[] = [];
    child.on("message", (message) => messages.push(message as HolderMessage));
    await until("the process writes", async () => messages.some(({ wrote }) => wrote !== undefined));
    return { child, messages };
  }

  test("a server that is killed serves all waiters when it is back, and has forgotten nothing", async () => {
    const workers = await startWorkers();
    const [holder, waiter] = [locksAt(server.url), locksAt(server.url)];
    const lease = await holder.mutex("kept", { ttlMs: 20_000 }).acquire();
    const waiting = waiter.mutex("kept", { ttlMs: 20_000 }).acquire();
    await until("somebody waits", async () => (await holder.inspect("kept")).waitingCount === 1);

    await server.kill();
    await sleep(300);
    await server.restart();
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
    server.pause();
    await sleep(leaseMs);
    server.resume();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("clocks that are wrong by an hour on the machines of clients change nothing", async () => {
    const workers = await startWorkers([wrongBy(-3_600_000), systemClock, wrongBy(3_600_000)]);
    await workers.servesAll(soonMs);
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("a holder that was paused for longer than its ttl knows that it lost before it writes", async () => {
    const { child, messages } = await startHolder();
    child.kill("SIGSTOP");
    const next = await locksAt(server.url).mutex("paused").acquire({ waitMs: soonMs });
    const grantedMs = Date.now();
    const exit = once(child, "exit");
    child.kill("SIGCONT");
    await exit;

    expect(next.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(messages.filter(({ wrote = 0 }) => wrote >= grantedMs)).toEqual([]);
    expect(messages.at(-1)).toEqual({ lost: true });
  });

  test("a process that was killed frees its locks with its lease, and whoever waits is told", async () => {
    const { child, messages } = await startHolder();
    const waiter = locksAt(server.url);
    // Its own heartbeats are far apart, so it is the end of the lease that it is told of.
    const waiting = waiter.mutex("paused", { ttlMs: 60_000 }).acquire();
    await until("somebody waits", async () => (await waiter.inspect("paused")).waitingCount === 1);
    child.kill("SIGKILL");
    const lease = await waiting;
    expect(lease.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(await waiter.inspect("paused")).toMatchObject({ heldCount: 1, waitingCount: 0 });
    await lease.release();
  }, 15_000);

  test("a claim that nobody renews is ended by its own process, which lives on, and whoever waits is told", async () => {
    const [living, waiter] = [participant(server.url), locksAt(server.url)];
    const key = "left behind";
    const request = claimRequest("left", { key, ttlMs: 2_000 });
    const held = await living.store.acquire(request);
    const lease = await waiter.mutex(key, { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    expect(held.state === "held" && lease.fence > held.fence).toBe(true);
    // Its lease lives on, with other claims.
    expect(await living.store.acquire({ ...request, key: "another", id: "other" })).toMatchObject({
      state: "held",
    });
    expect(await living.store.renew([request])).toEqual([{ state: "gone" }]);
    await living.store.close();
    await living.end();
  });

  test.for([
    ["after the server made it", (text: string) => cutReplyTo(text)],
    ["before all of it arrived", (text: string) => cutRequest(text, 60)],
  ] as const)("a connection that is cut %s makes one claim, and no second", async ([name, newRule]) => {
    const { proxy, url } = await proxied();
    const [near, far] = [locksAt(server.url), locksAt(url)];
    const key = `cut ${name}`;
    await far.mutex("warm", { ttlMs: 20_000 }).run(() => {});
    // What only a change of this record contains.
    const rule = newRule(`/r/${key}`);
    let cuts = 0;
    proxy.decide((piece) => {
      const fate = rule(piece);
      if (fate !== "pass") cuts++;
      return fate;
    });
    const lease = await far.mutex(key, { ttlMs: 20_000 }).acquire();
    expect(cuts).toBeGreaterThan(0);
    proxy.heal();
    expect(await near.inspect(key)).toMatchObject({ heldCount: 1, waitingCount: 0, fence: lease.fence });
    expect(await near.mutex(key).tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
    expect((await near.mutex(key).acquire()).fence).toBeGreaterThan(lease.fence);
  });

  test("a change that was given up and arrives late is not made, and leaves nobody holding", async () => {
    const { proxy, url } = await proxied();
    const near = locksAt(server.url);
    const { store, end } = participant(url, { flightMs: 500 });
    const far = createLocks(store, { onWarning: () => {} });
    const key = "late";
    // The lease that the late change would hang on lives on with these.
    const busy = await far.mutex("busy", { ttlMs: 20_000 }).acquire();
    let late: Piece | undefined;
    proxy.decide((piece) => {
      if (piece.direction === "request" && late === undefined && piece.bytes.includes(`/r/${key}`))
        late = piece;
      return piece.connection === late?.connection ? "hold" : "pass";
    });
    await expect(store.acquire(claimRequest("late", { key, ttlMs: 20_000 }))).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    expect(late).toBeDefined();
    // Something else that hangs on the same lease, through another connection.
    await until("another connection serves", () => far.mutex("more", { ttlMs: 20_000 }).run(() => true));
    const before = (await near.inspect("more")).fence;
    // It alone: the client has said since that it is not interested any more.
    let arrived = false;
    proxy.decide((piece) => {
      if (piece.connection !== late?.connection) return "pass";
      arrived ||= piece === late;
      return piece === late ? "pass" : "hold";
    });
    await until("it has arrived", async () => arrived);
    await sleep(300);
    expect(await near.inspect(key)).toMatchObject({ heldCount: 0, fence: 0n });
    expect((await near.mutex(key).acquire()).fence).toBeGreaterThan(before);
    expect(busy.held).toBe(true);
    await far.close();
    await end();
  });
});
