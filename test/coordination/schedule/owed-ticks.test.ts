/** A tick that has begun or is owed is run, or counted and reported as missed. */
import type { Schedule } from "holdfast";
import { describe, expect, test } from "vitest";
import { type Replica, START_MS } from "../../client/fleet.ts";
import { EVERY_MINUTE, EVERY_SECOND, Scheduled, seconds } from "./scheduled.ts";

const never = () => new Promise<void>(() => {});

function pause(replica: Replica, ms: number): Promise<void> {
  return new Promise((resolve) => replica.clock.setTimer(ms, resolve));
}

/** How many ticks a replica accounts for, in one way or another. */
function accounted(schedule: Schedule): number {
  const { completed, failed, interrupted, overlapped, missed, running } = schedule.status();
  return completed + failed + interrupted + overlapped + missed + running;
}

describe("a tick that has begun", () => {
  // Tick 10 begins. More than 160 newer ticks are written down. The runner dies.
  test.each([
    ["a replica that was there", 0],
    ["a replica that started long after it", 200_000],
  ])("is taken over by %s, however many newer ones have run since", async (_, startAfterMs) => {
    const job = new Scheduled(EVERY_SECOND, { takeover: true, overlap: "allow" });
    const first = job.fleet.add(100);
    job.start(first);
    job.body = ({ tick, attempt }) =>
      tick.getTime() === START_MS + 10_000 && attempt === 1 ? never() : undefined;
    await job.fleet.advance(startAfterMs, 250);
    const second = job.fleet.add();
    const schedule = job.start(second, { history: 100 });
    await job.fleet.advance(250_000 - startAfterMs, 250);
    const running = (await schedule.history()).filter(({ outcome }) => outcome === "running");
    expect(running).toMatchObject([{ tick: new Date(START_MS + 10_000) }]);
    first.crash();
    await job.fleet.advance(20_000, 250);
    const runs = job.runs.filter(({ tickMs }) => tickMs === START_MS + 10_000);
    expect(runs).toMatchObject([{ replica: first }, { replica: second, run: { attempt: 2 } }]);
    expect(new Set(job.ticks).size).toBe(job.ticks.length - 1);
  });

  // An outage ends the lease of the run, and lasts longer than lateMs. The run is owed all the same.
  test("is run again after an outage that cost its lease, with the default options", async () => {
    const job = new Scheduled(EVERY_SECOND, { takeover: true, overlap: "allow", ttlMs: 30_000 });
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    job.body = ({ tick, attempt, signal }) =>
      tick.getTime() === START_MS + 10_000 && attempt === 1
        ? new Promise((_, reject) => signal.addEventListener("abort", reject))
        : undefined;
    // The lease was last renewed when it was granted, or at 20.
    await job.fleet.advance(19_500, 250);
    replica.cutOff();
    await job.fleet.advance(25_000, 250);
    replica.reconnect();
    await job.fleet.advance(55_500, 250);
    expect(job.runs.filter(({ tickMs }) => tickMs === START_MS + 10_000)).toHaveLength(2);
    expect(accounted(schedule)).toBe(100);
  });

  // Each minute adds a note of a skipped tick.
  test.each([false, true])("and runs for 200 minutes stays in the history, takeover %s", async (takeover) => {
    const job = new Scheduled(EVERY_MINUTE, { takeover, ttlMs: 60_000 });
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    job.body = ({ tick }) =>
      tick.getTime() === START_MS + 60_000 ? pause(replica, 200 * 60_000) : undefined;
    await job.fleet.advance(190 * 60_000, 5_000);
    const ran = async () => (await schedule.history()).filter(({ outcome }) => outcome !== "skipped");
    expect(await ran()).toMatchObject([{ tick: new Date(START_MS + 60_000), outcome: "running" }]);
    await job.fleet.advance(15 * 60_000, 5_000);
    expect((await ran()).at(-1)).toMatchObject({ tick: new Date(START_MS + 60_000), outcome: "completed" });
    expect(accounted(schedule)).toBe(205);
    expect((await replica.locks.inspect("job#runs")).heldCount).toBeLessThan(60);
  });

  // Skipped ticks fill the notes while it runs. Then its runner dies.
  test("and runs for 200 minutes is taken over", async () => {
    const job = new Scheduled(EVERY_MINUTE, { takeover: true, ttlMs: 60_000 });
    const [first, second] = [job.fleet.add(100), job.fleet.add()];
    for (const replica of [first, second]) job.start(replica);
    job.body = (_, replica) => (replica === first ? never() : undefined);
    await job.fleet.advance(200 * 60_000, 5_000);
    first.crash();
    await job.fleet.advance(90_000, 1_000);
    expect(job.runs.slice(0, 2)).toMatchObject([
      { replica: first, tickMs: START_MS + 60_000 },
      { replica: second, tickMs: START_MS + 60_000, run: { attempt: 2 } },
    ]);
  });
});

describe("a tick that there is no room for", () => {
  // Runs begin and never end, but for every fiftieth.
  test("is counted and reported", async () => {
    const job = new Scheduled(EVERY_SECOND, { takeover: true, overlap: "allow", ttlMs: 60_000 });
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    job.body = ({ tick }) => (tick.getTime() % 50_000 === 0 ? undefined : never());
    await job.fleet.advance(550_500, 500);
    expect(schedule.status()).toMatchObject({ completed: 11, running: 539, missed: 39 });
    expect(new Set(replica.codes())).toEqual(new Set(["TICKS_MISSED"]));
    expect((await schedule.history()).filter(({ outcome }) => outcome === "running")).toHaveLength(500);
  });
});

describe("missed: all", () => {
  // The newer ticks run beside the backlog and fill the notes: with each kind of overlap, on one replica and on two.
  test.each([
    ["allow", 60, 1],
    ["allow", 30, 2],
    ["queue", 100, 1],
    ["queue", 100, 2],
  ] as const)(
    "%s: runs all of a backlog of %i while newer ticks run, replicas: %i",
    async (overlap, count, replicas) => {
      const job = new Scheduled(EVERY_SECOND, { missed: "all", overlap, lateMs: 1_000 });
      const before = job.fleet.add();
      job.start(before);
      await job.fleet.advance(1_500);
      before.crash();
      await job.fleet.advance(count * 1_000, 1_000);
      // With "queue" a backlog of 100 takes four minutes.
      const isOld = (tick: Date) => tick.getTime() <= START_MS + (count + 1) * 1_000;
      const tookMs = (tick: Date) => (overlap === "queue" ? 700 : isOld(tick) ? 10_000 : 0);
      job.body = ({ tick }, replica) => pause(replica, tookMs(tick));
      const schedules = Array.from({ length: replicas }, () => job.start(job.fleet.add()));
      await job.fleet.advance(overlap === "queue" ? 600_000 : 720_000, 200);
      const ran = job.ticks.toSorted((a, b) => a - b);
      expect(ran).toEqual(seconds(ran.length));
      expect(ran.length).toBeGreaterThan(600);
      expect(schedules.map((schedule) => schedule.status().missed)).toEqual(schedules.map(() => 0));
    },
  );

  // The replica that works off the backlog dies in the middle of it, when newer ticks have filled the notes.
  test("a backlog whose replica died is worked off by the next one to start", async () => {
    const job = new Scheduled(EVERY_SECOND, { missed: "all", overlap: "allow", history: 1, lateMs: 1_000 });
    const before = job.fleet.add();
    job.start(before);
    await job.fleet.advance(1_500);
    before.crash();
    await job.fleet.advance(60_000, 1_000);
    job.body = ({ tick }, replica) => pause(replica, tick.getTime() <= START_MS + 61_000 ? 2_000 : 0);
    const dying = job.fleet.add();
    job.start(dying);
    await job.fleet.advance(40_000, 200);
    dying.crash();
    const cutShort = job.ticks.filter((tick) => tick <= 61).length;
    expect(cutShort).toBeLessThan(30);
    const schedule = job.start(job.fleet.add());
    await job.fleet.advance(120_000, 200);
    const ran = job.ticks.toSorted((a, b) => a - b);
    expect(ran).toEqual(seconds(ran.length));
    expect(schedule.status().missed).toBe(0);
  });

  // 200 ticks are late and 100 may run. The others are reported once, and a replica that starts later does not run them.
  test("what is beyond maxMissed is counted, reported and never run", async () => {
    const job = new Scheduled(EVERY_SECOND, {
      missed: "all",
      overlap: "allow",
      maxMissed: 10,
      lateMs: 1_000,
    });
    const before = job.fleet.add();
    job.start(before);
    await job.fleet.advance(1_500);
    before.crash();
    await job.fleet.advance(50_000, 1_000);
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    await job.fleet.advance(60_000, 200);
    expect(replica.codes()).toEqual(["TICKS_MISSED"]);
    expect(job.ticks.length + schedule.status().missed).toBe(111);
    const ran = job.ticks.length;
    const later = job.start(job.fleet.add());
    await job.fleet.advance(10_000, 200);
    expect(job.ticks.length).toBe(ran + 10);
    expect(later.status().missed).toBe(0);
  });
});

describe("a wall clock that is set, with a lateMs of a second", () => {
  test("forward: a tick that is still ahead runs", async () => {
    const job = new Scheduled(EVERY_MINUTE, { lateMs: 1_000 });
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    await job.fleet.advance(41_000, 100);
    // The timer would look again at 50, by then at 59.5 + 9.
    replica.clock.setWall(START_MS + 59_500);
    await job.fleet.advance(60_000, 100);
    expect(job.ticks).toEqual([60]);
    expect(schedule.status().missed).toBe(0);
  });

  // A look at 50 sees the glitch. The clock is right again at 55, and the next look may be as late as 60.
  test.each([1_000, 10_000])(
    "forward and back: a tick whose time comes after that runs, lateMs %i",
    async (lateMs) => {
      const job = new Scheduled(EVERY_MINUTE, { lateMs });
      const replica = job.fleet.add();
      job.start(replica);
      await job.fleet.advance(45_000, 100);
      replica.clock.setWall(START_MS + 3_615_000);
      await job.fleet.advance(10_000, 100);
      replica.clock.setWall(START_MS + 55_000);
      await job.fleet.advance(70_000, 100);
      expect(job.ticks).toEqual([60, 120]);
    },
  );
});
