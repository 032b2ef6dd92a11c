/**
 * The faults that every store survives. Its processes are killed and paused, and their clocks are wrong. Its server is killed,
 * paused, emptied and cut off while workers take turns. Throughout, fences only grow, the store never has two holders, an outage
 * is never contention, and all workers are served soon after the server is back. `npm test` plays one fault of each kind;
 * `npm run faults` sets `FAULTS` and plays all of them.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type Clock, createLocks, type Locks, systemClock } from "holdfast";
import { expect, onTestFinished, test } from "vitest";
import { type Engine, until } from "../engines/engine.ts";
import { cutReplyTo, cutRequest, type NetworkProxy, startProxy } from "../engines/proxy.ts";
import { forkProgram } from "../programs.ts";
import type { Holder } from "./holder-process.ts";
import { type Participant, Workers } from "./workers.ts";
import type { HolderMessage } from "./writing-holder.ts";
import { testWrongClocks } from "./wrong-clocks.ts";

/** A store, and its peculiarities. */
export interface StoreUnderFaults {
  /** Opens it with a connection of its own, as another process would: to the server, or to a port that stands before it. */
  connect(options?: { readonly port?: number; readonly clock?: Clock }): Participant;
  /** The store of its processes. */
  readonly holder: Holder;
  /** How long after its last heartbeat a claim of `ttlMs` may still stand. Default: its ttl. */
  readonly endsAfterMs?: number;
  /** Whether its fences are times in microseconds. */
  readonly stampsFences: boolean;
}

export interface ServerUnderFaults extends StoreUnderFaults {
  engine(): Engine;
  /** Removes all records behind the back of the store. */
  forget(): Promise<unknown>;
  /** A text that only a request that changes the record of this key contains, and fewer bytes than it is long. */
  readonly swap: { contains(key: string): string; readonly cutAfterBytes: number };
  /** The span of confirmed changes that the server may forget when it is killed. Default 0. */
  forgetsMs?(): number;
}

export const ttlMs = 1_500;
/** Whether this is a run of `npm run faults`. */
const isLong = process.env["FAULTS"] === "all";

/** A heartbeat, the claim of the latest holder, and the time that a busy machine and reconnecting take. */
const soonMs = ({ endsAfterMs = ttlMs }: StoreUnderFaults) => ttlMs / 3 + endsAfterMs + 12_000;

/** For stores with a server: the tests of `processFaults`, and faults of the server and its connections. */
export function serverFaults(subject: ServerUnderFaults): void {
  const { engine, forgetsMs = () => 0 } = subject;

  test("a lease and its waiter outlive a kill of the server", async () => {
    const { lease, waiting, expectKept } = await holdAndWait(subject);
    await sleep(forgetsMs());
    await engine().kill();
    await engine().restart();
    await until("the lease is proven again", async () => {
      await lease.extend(20_000);
      return true;
    });
    await expectKept();
    await lease.release();
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lease.fence);
    await next.release();
  });

  test("a server that is paused for longer than the ttl serves all waiters when it goes on", async () => {
    const workers = await startWorkers(subject);
    engine().pause();
    await sleep((subject.endsAfterMs ?? ttlMs) + 500);
    engine().resume();
    await workers.servesAll(soonMs(subject));
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("a server that has lost all records, as a failover can lose some, gives out no fence twice", async () => {
    const workers = await startWorkers(subject);
    for (let round = 0; round < (isLong ? 3 : 1); round++) {
      await subject.forget();
      await workers.servesAll(soonMs(subject));
    }
    await workers.stop();
  });

  cutSwaps(subject);
  processFaults(subject);
  if (isLong) longServerFaults(subject);
}

/** Workers take turns while the server is killed twice, and processes have wrong clocks. */
function longServerFaults(subject: ServerUnderFaults): void {
  const { engine, forgetsMs = () => 0 } = subject;

  test("a server that is killed serves all waiters when it is back, and has forgotten nothing", async () => {
    const workers = await startWorkers(subject);
    const { lease, waiting, expectKept } = await holdAndWait(subject);
    for (let round = 0; round < 2; round++) {
      await sleep(forgetsMs());
      await engine().kill();
      await sleep(300);
      await engine().restart();
      await workers.servesAll(soonMs(subject));
    }
    await workers.stop();
    // A server that forgets may grant the lock of a living holder.
    if (forgetsMs() === 0) expect(workers.overlaps).toBe(0);
    await expectKept();
    expect(lease.held).toBe(true);
    await lease.release();
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lease.fence);
    await next.release();
  });

  testWrongClocks(subject);
}

/** For stores with a server: a connection that breaks during a swap. */
export function cutSwaps(subject: Pick<ServerUnderFaults, "connect" | "engine" | "swap">): void {
  test.for([
    ["after the server made it", cutReplyTo],
    ["before all of it arrived", (text: string) => cutRequest(text, subject.swap.cutAfterBytes)],
  ] as const)("a swap whose connection is cut %s makes one claim, and no second", async ([when, newRule]) => {
    const proxy = await proxied(subject.engine().port);
    const [near, far] = [locksOver(subject), locksOver(subject, proxy.port)];
    const key = `cut ${when}`;
    // The first use prepares the store.
    await far.mutex("warm", { ttlMs: 20_000 }).run(() => {});
    await far.inspect(key);
    const rule = newRule(subject.swap.contains(key));
    let cuts = 0;
    proxy.decide((piece) => {
      const fate = rule(piece);
      if (fate !== "pass") cuts++;
      return fate;
    });
    const lease = await far.mutex(key, { ttlMs: 20_000 }).acquire();
    proxy.heal();
    expect(cuts).toBe(1);
    expect(await near.inspect(key)).toMatchObject({ heldCount: 1, waitingCount: 0, fence: lease.fence });
    expect(await near.mutex(key).tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
    const next = await near.mutex(key).acquire();
    expect(next.fence).toBeGreaterThan(lease.fence);
    await next.release();
  });
}

/** For any store: faults of its processes. */
export function processFaults(subject: StoreUnderFaults): void {
  test("a holder that was paused for longer than its ttl knows that it lost before it writes", async () => {
    const { child, messages } = await startHolder(subject);
    child.kill("SIGSTOP");
    const next = await locksOver(subject)
      .mutex("paused")
      .acquire({ waitMs: soonMs(subject) });
    const grantedMs = Date.now();
    const exit = once(child, "exit");
    child.kill("SIGCONT");
    await exit;
    // The last message may arrive after the end of its process.
    await until("the process has reported its loss", async () => messages.at(-1)?.lost === true);

    expect(next.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(messages.filter(({ wrote = 0 }) => wrote >= grantedMs)).toEqual([]);
    await next.release();
  });

  test("the lock of a killed process is free when its claim is over, and the waiter is woken", async () => {
    const { child, messages } = await startHolder(subject);
    const waiter = locksOver(subject);
    // Its heartbeats are far apart, so the end of the other claim wakes it.
    const waiting = waiter.mutex("paused", { ttlMs: 60_000 }).acquire();
    await until("the other client waits", async () => (await waiter.inspect("paused")).waitingCount === 1);
    child.kill("SIGKILL");
    const lease = await waiting;
    expect(lease.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(await waiter.inspect("paused")).toMatchObject({ heldCount: 1, waitingCount: 0 });
    await lease.release();
  }, 15_000);
}

/** The clock of a machine whose wall clock is wrong. */
export function wrongBy(ms: number): Clock {
  return { ...systemClock, wallMs: () => systemClock.wallMs() + ms };
}

/** A proxy before the port of a server, until the test is over. */
export async function proxied(port: number): Promise<NetworkProxy> {
  const proxy = await startProxy(port);
  onTestFinished(() => proxy.stop());
  return proxy;
}

/** Locks over a store of their own, until the test is over. */
function locksOver({ connect }: Pick<StoreUnderFaults, "connect">, port?: number): Locks {
  const { store, end } = connect(port === undefined ? {} : { port });
  const locks = createLocks(store, { onWarning: () => {} });
  onTestFinished(async () => {
    await locks.close();
    await end();
  });
  return locks;
}

function startWorkers({ connect }: StoreUnderFaults): Promise<Workers> {
  return Workers.start({ connects: [1, 2, 3].map(() => async () => connect()), ttlMs });
}

/** A lease and, in another client, a waiter for it. */
async function holdAndWait(subject: StoreUnderFaults) {
  const [holder, waiter] = [locksOver(subject), locksOver(subject)];
  const lease = await holder.mutex("kept", { ttlMs: 20_000 }).acquire();
  const waiting = waiter.mutex("kept", { ttlMs: 20_000 }).acquire();
  await until("the other client waits", async () => (await holder.inspect("kept")).waitingCount === 1);
  const expectKept = async () =>
    expect(await holder.inspect("kept")).toMatchObject({
      heldCount: 1,
      waitingCount: 1,
      fence: lease.fence,
    });
  return { lease, waiting, expectKept };
}

/** A process that holds the lock "paused", and writes. */
async function startHolder({ holder }: StoreUnderFaults): Promise<{
  child: ChildProcess;
  messages: HolderMessage[];
}> {
  const args = [holder.store, holder.target(), `${ttlMs}`];
  const child = forkProgram(new URL("./holder-process.ts", import.meta.url), args);
  onTestFinished(() => void child.kill("SIGKILL"));
  const messages: HolderMessage[] = [];
  child.on("message", (message) => messages.push(message as HolderMessage));
  await until("the process writes", async () => messages.some(({ wrote }) => wrote !== undefined));
  return { child, messages };
}
