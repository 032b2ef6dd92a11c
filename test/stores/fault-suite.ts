/**
 * What every store must survive: its processes get killed and stopped, their clocks are wrong, its server gets killed, paused,
 * emptied and cut off while workers take turns. Throughout: fences only grow, the store never has two holders, an outage is
 * never contention, everybody is served soon after the server is back, and nothing is unhandled, which the test runner watches.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type Clock, createLocks, type Locks, systemClock } from "holdfast";
import { expect, onTestFinished, test } from "vitest";
import { type Engine, until } from "../engines/engine.ts";
import { cutReplyTo, cutRequest, type NetworkProxy, startProxy } from "../engines/proxy.ts";
import { forkProgram } from "../programs.ts";
import { type Participant, Workers } from "./workers.ts";
import type { HolderMessage } from "./writing-holder.ts";
import { testWrongClocks } from "./wrong-clocks.ts";

/** A store, and what is peculiar to it. */
export interface StoreUnderFaults {
  /** Opens it with a connection of its own, as another process would: to the server, or to a port that stands before it. */
  connect(options?: { readonly port?: number; readonly clock?: Clock }): Participant;
  /** The program that calls `writeWhileHeld`, for a server `playPart`, and what tells it where the store is. */
  readonly holder: { readonly program: URL; target(): string };
  /** How long after its last heartbeat a claim of `ttlMs` may still stand. Default: as long as its ttl. */
  readonly endsAfterMs?: number;
  /** Whether its fences tell the time, in microseconds. */
  readonly stampsFences: boolean;
}

export interface ServerUnderFaults extends StoreUnderFaults {
  engine(): Engine;
  /** Removes all records behind the back of the store. */
  forget(): Promise<unknown>;
  /** What a request that changes the record of this key contains, and no other does; and less bytes than it is long. */
  readonly swap: { contains(key: string): string; readonly cutAfterBytes: number };
  /** How much of what it has confirmed the server may forget when it is killed. Default 0. */
  forgetsMs?(): number;
}

export const ttlMs = 1_500;
const HOUR_MS = 3_600_000;

/** A heartbeat, the claim of whoever held last, and what a busy machine and reconnecting take. */
const soonMs = ({ endsAfterMs = ttlMs }: StoreUnderFaults) => ttlMs / 3 + endsAfterMs + 12_000;

/** For stores with a server: the tests of `processFaults`, and those in which the server is the one that suffers. */
export function serverFaults(subject: ServerUnderFaults): void {
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
    // Who held the lock may be among what a server has forgotten.
    if (forgetsMs() === 0) expect(workers.overlaps).toBe(0);
    await expectKept();
    expect(lease.held).toBe(true);
    await lease.release();
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lease.fence);
    await next.release();
  });

  test("a lease and whoever waits for it outlive a kill of the server", async () => {
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
    for (let round = 0; round < 3; round++) {
      await subject.forget();
      await workers.servesAll(soonMs(subject));
    }
    await workers.stop();
  });

  cutSwaps(subject);
  processFaults(subject);
  testWrongClocks(subject);
}

/** For stores with a server: what becomes of a swap in which the connection goes away. */
export function cutSwaps(subject: Pick<ServerUnderFaults, "connect" | "engine" | "swap">): void {
  test.for([
    ["after the server made it", cutReplyTo],
    ["before all of it arrived", (text: string) => cutRequest(text, subject.swap.cutAfterBytes)],
  ] as const)("a swap whose connection is cut %s makes one claim, and no second", async ([when, newRule]) => {
    const proxy = await proxied(subject.engine().port);
    const [near, far] = [locksOver(subject), locksOver(subject, proxy.port)];
    const key = `cut ${when}`;
    // What is done at first use is done.
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

/** For any store: what becomes of its processes and of their clocks. */
export function processFaults(subject: StoreUnderFaults): void {
  test("clocks that are wrong by an hour on the machines of clients change nothing", async () => {
    const workers = await startWorkers(subject, [wrongBy(-HOUR_MS), systemClock, wrongBy(HOUR_MS)]);
    await workers.servesAll(soonMs(subject));
    await workers.servesAll(soonMs(subject));
    await workers.stop();
    expect(workers.overlaps).toBe(0);
    if (!subject.stampsFences) return;
    const halfAnHourAgo = BigInt(Date.now() - HOUR_MS / 2) * 1_000n;
    const inHalfAnHour = BigInt(Date.now() + HOUR_MS / 2) * 1_000n;
    expect(workers.fences.filter((fence) => fence > inHalfAnHour || fence < halfAnHourAgo)).toEqual([]);
    const [first, last] = [workers.fences[0]!, workers.fences.at(-1)!];
    expect(last - first).toBeLessThan(BigInt(HOUR_MS / 2) * 1_000n);
  });

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
    // Its last words may be heard after its end.
    await until("it has told that its lease is lost", async () => messages.at(-1)?.lost === true);

    expect(next.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(messages.filter(({ wrote = 0 }) => wrote >= grantedMs)).toEqual([]);
    await next.release();
  });

  test("the lock of a process that was killed is free when its claim is over, and whoever waits is told", async () => {
    const { child, messages } = await startHolder(subject);
    const waiter = locksOver(subject);
    // Its own heartbeats are far apart, so it is the end of the claim that it learns of.
    const waiting = waiter.mutex("paused", { ttlMs: 60_000 }).acquire();
    await until("somebody waits", async () => (await waiter.inspect("paused")).waitingCount === 1);
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

function startWorkers(
  { connect }: StoreUnderFaults,
  clocks: readonly Clock[] = [systemClock, systemClock, systemClock],
): Promise<Workers> {
  return Workers.start({ connects: clocks.map((clock) => async () => connect({ clock })), ttlMs });
}

/** A lease and, in another process, somebody who waits for it. */
async function holdAndWait(subject: StoreUnderFaults) {
  const [holder, waiter] = [locksOver(subject), locksOver(subject)];
  const lease = await holder.mutex("kept", { ttlMs: 20_000 }).acquire();
  const waiting = waiter.mutex("kept", { ttlMs: 20_000 }).acquire();
  await until("somebody waits", async () => (await holder.inspect("kept")).waitingCount === 1);
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
  const args = [holder.target(), `${ttlMs}`];
  const child = forkProgram(holder.program, args);
  onTestFinished(() => void child.kill("SIGKILL"));
  const messages: HolderMessage[] = [];
  child.on("message", (message) => messages.push(message as HolderMessage));
  await until("the process writes", async () => messages.some(({ wrote }) => wrote !== undefined));
  return { child, messages };
}
