/** Newcomers to a key that others never leave alone for as long as a newcomer's round trip takes: in the record they are all the same, and soon. */
import { type Clock, createLocks } from "holdfast";
import { type CasDriver, casStore } from "holdfast/cas";
import { ManualClock } from "holdfast/testing";
import { expect, onTestFinished, test } from "vitest";
import { MapDatabase, mapDriver } from "../../../examples/driver/map-driver.ts";
import { Random } from "../../simulation/random.ts";
import { LeaseDatabase, leaseDriver } from "../etcd/lease-driver.ts";
import { distantDriver } from "./distant-driver.ts";
import { wait } from "./scene.ts";

const WORKERS = 5;
const HOLD_MS = 2.3;
/** By how much a round trip may be shorter or longer than it usually is. */
const UNEVENNESS = 0.15;
/** By how much the clocks of processes differ where there is no server's time. */
const APART_MS = 5;

interface Contest {
  readonly clock: ManualClock;
  readonly random: Random;
  /** The driver of the nth process. */
  driver(nth: number, clock: Clock): CasDriver;
  /** By how much the clock of the nth process is ahead. */
  aheadMs(nth: number): number;
}

function withServerTime(seed: number): Contest {
  const clock = new ManualClock();
  const database = new MapDatabase(() => Math.floor(clock.wallMs()));
  return { clock, random: new Random(seed), driver: () => mapDriver(database), aheadMs: () => 0 };
}

function withoutServerTime(seed: number): Contest {
  const clock = new ManualClock();
  const database = new LeaseDatabase(() => Math.floor(clock.wallMs()));
  return {
    clock,
    random: new Random(seed),
    driver(nth, own) {
      return leaseDriver(database, own, `process-${nth}`);
    },
    aheadMs: (nth) => nth * APART_MS,
  };
}

/** Processes at work, and how long a newcomer takes to get its claim into the record, once they have been at it for a while. */
async function msUntilIn(contest: Contest, busyMs: readonly number[], newcomerMs: number): Promise<number> {
  const { clock, random } = contest;
  for (const [nth, roundTripMs] of busyMs.entries()) work(contest, nth, roundTripMs);
  await clock.advance(random.between(300, 2_300));
  const store = storeOf(contest, busyMs.length, newcomerMs);
  const startMs = clock.monotonicMs();
  let inMs: number | undefined;
  const answer = store.acquire(wait("k", "newcomer")).then(() => {
    inMs = clock.monotonicMs() - startMs;
  });
  while (inMs === undefined && clock.monotonicMs() - startMs < 9_000) await clock.advance(1);
  // Nobody looks at what becomes of it where the time was up.
  answer.catch(() => {});
  return inMs ?? Number.POSITIVE_INFINITY;
}

function storeOf({ clock, random, driver, aheadMs }: Contest, nth: number, roundTripMs: number) {
  const own: Clock = {
    wallMs: () => clock.wallMs() + aheadMs(nth),
    monotonicMs: () => clock.monotonicMs(),
    setTimer: (delayMs, callback) => clock.setTimer(delayMs, callback),
  };
  const near = driver(nth, own);
  const distant = distantDriver(near, {
    clock,
    journey() {
      const wayMs = (roundTripMs / 2) * random.between(1 - UNEVENNESS, 1 + UNEVENNESS);
      return { thereMs: wayMs, backMs: wayMs };
    },
  });
  const store = casStore(distant, {
    clock: own,
    random: () => random.next(),
  });
  onTestFinished(() => void store.close());
  return store;
}

/** Workers that want the key again and again. */
function work(contest: Contest, nth: number, roundTripMs: number): void {
  const { clock } = contest;
  const locks = createLocks(storeOf(contest, nth, roundTripMs), { clock, onWarning: () => {} });
  const pause = () => new Promise<void>((resolve) => void clock.setTimer(HOLD_MS, resolve));
  async function worker(): Promise<void> {
    for (;;) {
      const lease = await locks.mutex("k").acquire();
      await pause();
      await lease.release();
    }
  }
  // They end with the store.
  for (let count = 0; count < WORKERS; count++) worker().catch(() => {});
}

async function longestMs(
  contestOf: (seed: number) => Contest,
  busyMs: readonly number[],
  newcomerMs: number,
): Promise<number> {
  let longest = 0;
  for (let seed = 1; seed <= 4; seed++) {
    longest = Math.max(longest, await msUntilIn(contestOf(seed), busyMs, newcomerMs));
  }
  return longest;
}

test("cas: a newcomer is in within two seconds if a process that is hardly nearer had the key to itself", async () => {
  expect(await longestMs(withServerTime, [4], 4.5)).toBeLessThan(2_000);
});

test("cas: a newcomer whose round trip takes three times as long as everybody else's is in within two seconds", async () => {
  expect(await longestMs(withServerTime, [1, 1, 1], 3)).toBeLessThan(2_000);
  expect(await longestMs(withServerTime, [3, 3, 3], 9)).toBeLessThan(2_000);
});

test("cas: a newcomer that is far from where all others are is in within two seconds", async () => {
  expect(await longestMs(withServerTime, [1, 1, 1], 15)).toBeLessThan(2_000);
});

test("cas: a newcomer is in within two seconds also where the time is only that of the processes", async () => {
  expect(await longestMs(withoutServerTime, [4], 4.5)).toBeLessThan(2_000);
  expect(await longestMs(withoutServerTime, [3, 3, 3], 9)).toBeLessThan(2_000);
});
