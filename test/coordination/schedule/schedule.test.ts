import { createLocks, type RunRecord, type ScheduleOptions } from "holdfast";
import { describe, expect, test } from "vitest";
import { Fleet, type Replica, START_MS } from "../../client/fleet.ts";
import { EVERY_MINUTE, EVERY_SECOND, type Run, Scheduled, seconds, TTL_MS } from "./scheduled.ts";

/** A promise that a test settles. */
function gate(): { readonly passed: Promise<void>; open: () => void } {
  let open = () => {};
  const passed = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}

describe("a schedule", () => {
  test("runs each tick on one replica, though clocks differ by seconds and the job takes no time", async () => {
    const job = new Scheduled();
    for (const skewMs of [0, -3_000, 3_000, 1_400, -800]) job.start(job.fleet.add(skewMs));
    await job.fleet.advance(20_500);
    // The first replica to start sets where the schedule begins; the fastest one is three seconds ahead.
    expect(job.ticks).toEqual(seconds(job.ticks.length, job.ticks[0]));
    expect(job.ticks.length).toBeGreaterThanOrEqual(20);
    expect(new Set(job.ticks).size).toBe(job.ticks.length);
  });

  test("does not run what lies before it was first started", async () => {
    const job = new Scheduled("0 * * * *", { missed: "all" });
    job.start(job.fleet.add());
    await job.fleet.advance(60_000, 1_000);
    expect(job.runs).toEqual([]);
  });

  // The notes of its ticks have been removed; the floor was raised before.
  test("a replica whose clock is behind by more than any bound runs nothing again", async () => {
    const job = new Scheduled(EVERY_SECOND, { maxSkewMs: 0, history: 1, overlap: "allow" });
    job.start(job.fleet.add());
    await job.fleet.advance(30_500);
    const before = job.ticks;
    job.start(job.fleet.add(-25_000), { missed: "all" });
    await job.fleet.advance(24_000);
    expect(job.ticks.slice(before.length)).toEqual(seconds(24, 31));
    expect(job.runs.slice(before.length).every(({ replica }) => replica === job.fleet.replicas[0])).toBe(
      true,
    );
  });

  test("hands its body the tick, a fence that grows and a signal", async () => {
    const job = new Scheduled();
    job.start(job.fleet.add());
    await job.fleet.advance(3_100);
    const fences = job.runs.map(({ run }) => run.fence);
    expect(fences).toEqual([...fences].sort((a, b) => (a < b ? -1 : 1)));
    expect(new Set(fences).size).toBe(3);
    expect(job.runs[0]?.run).toMatchObject({ name: "job", attempt: 1, tick: new Date(START_MS + 1_000) });
    expect(job.runs[0]?.run.held).toBe(false);
    expect(() => job.runs[0]?.run.assertHeld()).toThrow(/released/);
  });

  test("is one of a client's, until it is stopped", async () => {
    const { locks } = new Fleet().add();
    const first = locks.schedule("job", EVERY_SECOND, () => {});
    expect(() => locks.schedule("job", EVERY_SECOND, () => {})).toThrow(/already has a schedule "job"/);
    locks.schedule("other", EVERY_SECOND, () => {});
    await first.stop();
    locks.schedule("job", EVERY_SECOND, () => {});
  });
});

describe("ticks in a time zone", () => {
  /** The instants at which a schedule runs in a span of time. */
  async function instants(cron: string, timezone: string, from: string, hours: number): Promise<string[]> {
    const fleet = new Fleet();
    fleet.clock.setWall(Date.parse(from));
    const { locks } = fleet.add();
    const ran: string[] = [];
    locks.schedule("job", cron, ({ tick }) => ran.push(tick.toISOString().slice(5, 16)), { timezone });
    await fleet.advance(hours * 3_600_000, 600_000);
    return ran;
  }

  test("a daily job runs once on the day that the clocks go forward, and on the day that they go back", async () => {
    expect(await instants("30 2 * * *", "Europe/Berlin", "2030-03-30T00:00:00Z", 72)).toEqual([
      "03-30T01:30",
      "03-31T01:00",
      "04-01T00:30",
    ]);
    expect(await instants("30 2 * * *", "Europe/Berlin", "2030-10-26T00:00:00Z", 72)).toEqual([
      "10-26T00:30",
      "10-27T00:30",
      "10-28T01:30",
    ]);
  });

  test("a job of every half hour goes on through both", async () => {
    const spring = await instants("*/30 * * * *", "Europe/Berlin", "2030-03-31T00:10:00Z", 2);
    expect(spring).toEqual(["03-31T00:30", "03-31T01:00", "03-31T01:30", "03-31T02:00"]);
    const autumn = await instants("*/30 * * * *", "Europe/Berlin", "2030-10-27T00:10:00Z", 2);
    expect(autumn).toEqual(["10-27T00:30", "10-27T01:00", "10-27T01:30", "10-27T02:00"]);
  });

  test("without a time zone it is UTC", async () => {
    expect(await instants("0 3 * * *", "UTC", "2030-05-05T00:00:00Z", 24)).toEqual(["05-05T03:00"]);
  });
});

describe("missed ticks", () => {
  test("skip leaves them out, and says so", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    await job.fleet.advance(61_000, 1_000);
    for (const { clock } of [job.fleet, replica]) clock.block(200_000);
    await job.fleet.advance(120_000, 1_000);
    expect(job.ticks).toEqual([60, 300, 360]);
    expect(schedule.status().missed).toBe(3);
    expect(replica.codes()).toContain("TICKS_MISSED");
  });

  test("a tick that is late by less than lateMs is not missed", async () => {
    const job = new Scheduled(EVERY_MINUTE, { lateMs: 20_000 });
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(50_000, 1_000);
    for (const { clock } of [job.fleet, replica]) clock.block(25_000);
    await job.fleet.advance(11_000, 1_000);
    expect(job.ticks).toEqual([60]);
    expect(replica.warnings).toEqual([]);
  });

  test("latest runs the latest of them once", async () => {
    const job = new Scheduled(EVERY_MINUTE, { missed: "latest" });
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(61_000, 1_000);
    for (const { clock } of [job.fleet, replica]) clock.block(200_000);
    await job.fleet.advance(30_000, 1_000);
    expect(job.ticks).toEqual([60, 240]);
  });

  test("all runs them in order, up to a bound", async () => {
    const job = new Scheduled(EVERY_MINUTE, { missed: "all", maxMissed: 3, overlap: "queue" });
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(61_000, 1_000);
    for (const { clock } of [job.fleet, replica]) clock.block(330_000);
    await job.fleet.advance(20_000, 1_000);
    expect(job.ticks).toEqual([60, 240, 300, 360]);
  });

  // Notes of newer ticks push out old ones; the floor must stay below the pending ticks.
  test("those that are still to be made up for keep their place while newer ones run", async () => {
    const missed = { missed: "all", maxMissed: 50, history: 1, maxSkewMs: 0, overlap: "queue" } as const;
    const job = new Scheduled(EVERY_SECOND, { ...missed, lateMs: 1_000 });
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    job.body = () => new Promise<void>((resolve) => replica.clock.setTimer(300, resolve));
    await job.fleet.advance(1_500);
    for (const { clock } of [job.fleet, replica]) clock.block(45_000);
    await job.fleet.advance(60_000, 100);
    const ran = job.ticks.toSorted((a, b) => a - b);
    expect(ran).toEqual(seconds(ran.length));
    expect(ran.length).toBeGreaterThan(100);
    expect(schedule.status().missed).toBe(0);
  });

  test("so do those that the store could not be asked about", async () => {
    const missed = { missed: "all", maxMissed: 50, history: 1, maxSkewMs: 0, overlap: "allow" } as const;
    const job = new Scheduled(EVERY_SECOND, { ...missed, lateMs: 1_000 });
    const replica = job.fleet.add();
    job.start(replica);
    // Newer ticks run beside the missed ones, take longer, and end while those are owed.
    job.body = ({ tick }) => {
      const tookMs = tick.getTime() - START_MS > 22_000 ? 3_000 : 1_500;
      return new Promise<void>((resolve) => replica.clock.setTimer(tookMs, resolve));
    };
    await job.fleet.advance(1_500);
    for (const { clock } of [job.fleet, replica]) clock.block(20_000);
    await job.fleet.advance(15_000, 100);
    const claims = /^job#tick:/;
    replica.faults = ({ verb, args: [asked] }) =>
      verb === "acquire" && claims.test((asked as { key: string }).key)
        ? { error: new Error("busy") }
        : undefined;
    await job.fleet.advance(4_000, 100);
    replica.reconnect();
    await job.fleet.advance(60_000, 100);
    const ran = job.ticks.toSorted((a, b) => a - b);
    expect(ran).toEqual(seconds(ran.length));
    expect(ran.length).toBeGreaterThan(80);
  });

  test("a fleet that was down makes up for what nobody ran, once", async () => {
    const job = new Scheduled(EVERY_MINUTE, { missed: "latest" });
    const before = job.fleet.add();
    job.start(before);
    await job.fleet.advance(61_000, 1_000);
    before.crash();
    await job.fleet.advance(200_000, 1_000);
    for (let each = 0; each < 3; each++) job.start(job.fleet.add());
    await job.fleet.advance(20_000, 1_000);
    expect(job.ticks).toEqual([60, 240]);
    // Nothing is left to make up for.
    job.start(job.fleet.add());
    await job.fleet.advance(10_000, 1_000);
    expect(job.ticks).toEqual([60, 240]);
    expect(job.fleet.replicas.flatMap((replica) => replica.codes())).not.toContain("RUN_FAILED");
  });

  test("all of a fleet's: only those that nobody ran", async () => {
    const job = new Scheduled(EVERY_MINUTE, { missed: "all", overlap: "queue" });
    const before = job.fleet.add();
    job.start(before);
    await job.fleet.advance(121_000, 1_000);
    before.crash();
    await job.fleet.advance(180_000, 1_000);
    for (let each = 0; each < 3; each++) job.start(job.fleet.add());
    await job.fleet.advance(30_000, 1_000);
    expect(job.ticks).toEqual([60, 120, 180, 240, 300]);
  });
});

describe("a wall clock that is set", () => {
  // The tick is due once more, and its notes say that it is settled.
  test("back: nothing runs twice, and nothing is lost", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(185_000, 1_000);
    replica.clock.setWall(replica.clock.wallMs() - 120_000);
    await job.fleet.advance(240_000, 1_000);
    expect(job.ticks).toEqual([60, 120, 180, 240, 300]);
  });

  test("forward and back again: what was skipped meanwhile runs when its time comes", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(65_000, 1_000);
    replica.clock.setWall(replica.clock.wallMs() + 3_600_000 - 30_000);
    await job.fleet.advance(20_000, 1_000);
    replica.clock.setWall(replica.clock.wallMs() - 3_600_000 + 30_000);
    await job.fleet.advance(240_000, 1_000);
    expect(job.ticks).toEqual([60, 120, 180, 240, 300]);
  });

  test("a machine that slept is noticed although its timers did not go on", async () => {
    const job = new Scheduled("0 13 * * *", { missed: "latest" });
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(5_000, 1_000);
    // The lid was closed: the wall clock went on, and nothing else.
    replica.clock.setWall(replica.clock.wallMs() + 7_200_000);
    await job.fleet.advance(11_000, 1_000);
    expect(job.ticks).toEqual([3_600]);
  });

  test("a schedule that was taken up by a clock that is a year ahead begins all the same", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const wrong = job.fleet.add(365 * 86_400_000);
    job.start(wrong);
    await job.fleet.advance(5_000, 1_000);
    wrong.crash();
    job.start(job.fleet.add());
    await job.fleet.advance(120_000, 1_000);
    expect(job.ticks).toEqual([60, 120]);
  });
});

describe("a clock that is a day ahead, and goes on running ticks", () => {
  test("is told of by the others", async () => {
    const job = new Scheduled(EVERY_SECOND, { history: 1, maxSkewMs: 0 });
    const [right, wrong] = [job.fleet.add(), job.fleet.add(86_400_000)];
    job.start(right);
    await job.fleet.advance(2_500);
    job.start(wrong);
    await job.fleet.advance(320_000, 500);
    expect(right.codes()).toContain("CLOCKS_DIFFER");
    expect(wrong.codes()).not.toContain("CLOCKS_DIFFER");
    // None of them twice all the same.
    expect(new Set(job.ticks).size).toBe(job.ticks.length);
  });
});

describe("a run that is not over when the next tick comes", () => {
  async function overlapping(overlap: "skip" | "queue" | "allow"): Promise<Scheduled & { most: number }> {
    const job = Object.assign(new Scheduled(EVERY_SECOND, { overlap }), { most: 0 });
    let running = 0;
    job.body = async (_, replica) => {
      job.most = Math.max(job.most, ++running);
      await new Promise<void>((resolve) => replica.clock.setTimer(2_500, resolve));
      running--;
    };
    for (const skewMs of [0, 400, -300]) job.start(job.fleet.add(skewMs));
    await job.fleet.advance(12_000);
    return job;
  }

  test("skip leaves that tick out, on every replica", async () => {
    const job = await overlapping("skip");
    expect(job.most).toBe(1);
    expect(job.ticks.slice(0, 3)).toEqual([1, 4, 7]);
    const [replica] = job.fleet.replicas as [Replica];
    const history = await job.start(job.fleet.add()).history();
    expect(history.filter(({ outcome }) => outcome === "skipped").length).toBeGreaterThan(3);
    expect(replica.codes()).toEqual([]);
  });

  test("queue runs it afterwards", async () => {
    const job = await overlapping("queue");
    expect(job.most).toBe(1);
    expect(job.ticks.slice(0, 4)).toEqual([1, 2, 3, 4]);
  });

  test("allow runs it beside", async () => {
    const job = await overlapping("allow");
    expect(job.most).toBe(3);
    expect(job.ticks.slice(0, 4)).toEqual([1, 2, 3, 4]);
  });
});

describe("a replica that dies in the middle", () => {
  async function dying(takeover: boolean): Promise<Scheduled> {
    const job = new Scheduled("*/30 * * * * *", { takeover });
    const replicas = [job.fleet.add(100), job.fleet.add(), job.fleet.add(-100)];
    for (const replica of replicas) job.start(replica);
    job.body = async (run, replica) => {
      if (run.tick.getTime() !== START_MS + 30_000) return;
      if (replica === replicas[0]) await new Promise(() => {});
    };
    await job.fleet.advance(30_500);
    replicas[0]?.crash();
    await job.fleet.advance(45_000);
    return job;
  }

  // The runner dies in its body: there is a start note without an end.
  test("is taken over after its ttl, with a higher fence, once", async () => {
    const job = await dying(true);
    expect(job.ticks).toEqual([30, 30, 60]);
    const [first, second] = job.runs as [Run, Run];
    expect(second.replica).not.toBe(first.replica);
    expect(second.run.attempt).toBe(2);
    expect(second.run.fence).toBeGreaterThan(first.run.fence);
    const history = await job.start(job.fleet.add()).history();
    expect(history.map(({ attempt, outcome }) => [attempt, outcome])).toEqual([
      [1, "completed"],
      [2, "completed"],
      [1, "lost"],
    ]);
  });

  test("is not taken over unless asked for, and its end shows in the history", async () => {
    const job = await dying(false);
    expect(job.ticks).toEqual([30, 60]);
    const history = await job.start(job.fleet.add()).history();
    expect(history.map(({ outcome }) => outcome)).toEqual(["completed", "lost"]);
  });

  test.each([true, false])("before its body began is replaced, takeover %s", async (takeover) => {
    const job = new Scheduled("*/30 * * * * *", { takeover });
    const [first, second] = [job.fleet.add(100), job.fleet.add()];
    for (const replica of [first, second]) job.start(replica);
    await job.fleet.advance(29_000);
    // It gets the claim of the tick, and nothing after that.
    first.faults = ({ verb }) => (verb === "acquire" ? undefined : { lose: "request", hang: true });
    await job.fleet.advance(950);
    first.crash();
    expect(job.runs).toEqual([]);
    await job.fleet.advance(5_000);
    expect(job.runs).toMatchObject([{ replica: second, run: { attempt: 1 } }]);
  });

  test("while it queues for its turn is replaced, however long it has queued", async () => {
    const job = new Scheduled(EVERY_MINUTE, { overlap: "queue" });
    const [first, second, third] = [job.fleet.add(200), job.fleet.add(100), job.fleet.add()];
    const { passed, open } = gate();
    job.body = ({ tick }) => (tick.getTime() === START_MS + 60_000 ? passed : undefined);
    job.start(first);
    await job.fleet.advance(61_000, 100);
    // The run of the first goes on while the second has the claim of the next tick, and the third waits for that.
    for (const replica of [second, third]) job.start(replica);
    first.faults = (call) =>
      call.verb === "acquire" && call.args[0].key.includes("#tick:") ? { lose: "request" } : undefined;
    await job.fleet.advance(60_000 + 4 * TTL_MS, 100);
    second.crash();
    await job.fleet.advance(3 * TTL_MS, 100);
    open();
    await job.fleet.advance(2_000, 100);
    expect(job.ticks).toEqual([60, 120]);
    expect(job.runs[1]?.replica).toBe(third);
  });

  test("a fleet that restarts takes over what was cut off", async () => {
    const job = new Scheduled("0 * * * *", { takeover: true });
    const before = job.fleet.add();
    job.start(before);
    job.body = (_, replica) => (replica === before ? new Promise(() => {}) : undefined);
    await job.fleet.advance(3_601_000, 5_000);
    before.crash();
    await job.fleet.advance(600_000, 5_000);
    job.start(job.fleet.add());
    job.start(job.fleet.add());
    await job.fleet.advance(10_000);
    expect(job.ticks).toEqual([3_600, 3_600]);
  });

  test("a lone replica that lost its lease runs the tick again when its body has ended", async () => {
    const job = new Scheduled("0 * * * *", { takeover: true });
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    job.body = (run) =>
      run.attempt > 1 ? undefined : new Promise((_, reject) => run.signal.addEventListener("abort", reject));
    await job.fleet.advance(3_600_000, 5_000);
    await job.fleet.advance(1_000);
    replica.cutOff();
    await job.fleet.advance(8_000);
    replica.reconnect();
    await job.fleet.advance(10_000);
    expect(job.runs.map(({ run }) => run.attempt)).toEqual([1, 2]);
    expect(schedule.status()).toMatchObject({ completed: 1, available: true });
  });
});

describe("the claim of a tick", () => {
  test("is not acted upon when it was lost before the store had the note", async () => {
    // The runner hears of the grant, and of nothing else until somebody else may hold the claim.
    const job = new Scheduled("*/30 * * * * *");
    const [slow, other] = [job.fleet.add(100), job.fleet.add()];
    for (const replica of [slow, other]) job.start(replica);
    await job.fleet.advance(29_000);
    slow.faults = (call) => {
      if (call.verb === "acquire" && call.args[0].id.startsWith(":start:")) return { afterMs: 4_000 };
      return call.verb === "renew" ? { lose: "request" } : undefined;
    };
    await job.fleet.advance(20_000);
    // Its note was there before the other one looked, so nobody ran the tick: never two, sometimes none.
    expect(job.runs).toEqual([]);
    expect(slow.codes()).toContain("SKIPPED_UNAVAILABLE");
  });

  test("and the notes are gone from the store when they are of no use any more", async () => {
    const job = new Scheduled(EVERY_SECOND, { history: 5, maxSkewMs: 5_000, overlap: "allow" });
    for (const skewMs of [0, 500]) job.start(job.fleet.add(skewMs));
    await job.fleet.advance(120_000, 100);
    expect(job.ticks.length).toBeGreaterThanOrEqual(119);
    const [replica] = job.fleet.replicas as [Replica];
    const keys = [];
    for await (const { key, heldCount } of replica.locks.list()) keys.push({ key, heldCount });
    expect(keys).toEqual([{ key: "job#runs", heldCount: expect.any(Number) }]);
    expect(keys[0]?.heldCount).toBeLessThanOrEqual(5 + 10 + 3);
  });
});

describe("a store that is away", () => {
  // A wait that timed out does not settle a tick; only its notes do.
  test("nobody runs, and that is told", async () => {
    const job = new Scheduled(EVERY_MINUTE, { lateMs: 5_000 });
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    await job.fleet.advance(61_000, 1_000);
    replica.cutOff();
    await job.fleet.advance(80_000, 500);
    expect(job.ticks).toEqual([60]);
    expect(schedule.status()).toMatchObject({ available: false, lastError: { code: "STORE_UNAVAILABLE" } });
    expect(replica.codes().filter((code) => code === "SKIPPED_UNAVAILABLE")).toHaveLength(1);
    expect(replica.locks.stats().skipped).toBeGreaterThan(0);
    replica.reconnect();
    await job.fleet.advance(60_000, 500);
    expect(job.ticks).toEqual([60, 180]);
    expect(schedule.status()).toMatchObject({ available: true, missed: 1 });
  });

  test.each([
    ["latest", [60, 180, 240]],
    ["all", [60, 120, 180, 240]],
  ] as const)("%s makes up for it when it is back", async (missed, expected) => {
    const job = new Scheduled(EVERY_MINUTE, { lateMs: 5_000, missed, overlap: "queue" });
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(61_000, 1_000);
    replica.cutOff();
    await job.fleet.advance(150_000, 500);
    replica.reconnect();
    await job.fleet.advance(45_000, 500);
    expect(job.ticks).toEqual(expected);
  });

  test("each failed request is counted once", async () => {
    const job = new Scheduled(EVERY_MINUTE, { overlap: "allow" });
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(59_000, 1_000);
    let failed = 0;
    // The first three attempts at writing down that the run begins.
    replica.faults = ({ verb, args: [asked] }) => {
      const isStart = verb === "acquire" && (asked as { id: string }).id.startsWith(":start:");
      return isStart && failed++ < 3 ? { lose: "request" } : undefined;
    };
    await job.fleet.advance(5_000, 100);
    expect(job.ticks).toEqual([60]);
    expect(failed).toBe(4);
    expect(replica.locks.stats().failures).toBe(3);
  });

  test("at the start: the schedule begins when it is back", async () => {
    const job = new Scheduled();
    const replica = job.fleet.add();
    replica.cutOff();
    const schedule = job.start(replica);
    await job.fleet.advance(5_000);
    expect(job.runs).toEqual([]);
    expect(schedule.status().available).toBe(false);
    replica.reconnect();
    await job.fleet.advance(4_000);
    expect(job.runs.length).toBeGreaterThan(1);
  });

  test("a run that ends while it is away is written down when it is back", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    job.body = () => replica.cutOff();
    await job.fleet.advance(61_000, 500);
    replica.reconnect();
    await job.fleet.advance(5_000, 500);
    expect((await schedule.history()).map(({ outcome }) => outcome)).toEqual(["completed"]);
    expect(replica.warnings).toEqual([]);
  });

  test("for longer than the ttl: a run that ended meanwhile is told to be unrecorded", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    job.body = () => replica.cutOff();
    await job.fleet.advance(70_000, 500);
    expect(replica.codes()).toContain("RUN_UNRECORDED");
    replica.reconnect();
    job.body = () => {};
    await job.fleet.advance(61_000, 500);
    expect((await schedule.history()).map(({ outcome }) => outcome)).toEqual(["completed", "lost"]);
    expect(job.ticks).toEqual([60, 120]);
  });

  // Without a floor the schedule starts again, ahead of all clocks.
  test("one that has lost its data makes nobody run what may have been run", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const replica = job.fleet.add();
    job.start(replica);
    await job.fleet.advance(90_000, 1_000);
    for (const id of (await replica.locks.inspect("job#runs")).held.map((claim) => claim.id)) {
      await replica.locks.forceRelease("job#runs", id);
    }
    await job.fleet.advance(121_000, 1_000);
    expect(job.ticks).toEqual([60, 180]);
    expect(replica.codes()).toEqual(["SCHEDULE_FORGOTTEN"]);
  });
});

describe("the history", () => {
  test("says what ran, where, and how it ended, to every replica", async () => {
    const job = new Scheduled(EVERY_MINUTE, { history: 3 });
    const replica = job.fleet.add();
    job.start(replica);
    job.body = ({ tick }) => {
      if (tick.getTime() === START_MS + 120_000) throw new RangeError("no\nsuch \u0000 row");
    };
    await job.fleet.advance(301_000, 1_000);
    const history = await job.start(job.fleet.add(), { history: 100 }).history();
    expect(history.slice(0, 2)).toMatchObject([{ outcome: "completed" }, { outcome: "completed" }]);
    const failed = history.find(({ outcome }) => outcome === "failed") as RunRecord;
    expect(failed).toMatchObject({
      tick: new Date(START_MS + 120_000),
      attempt: 1,
      owner: replica.locks.owner,
      error: "RangeError: no such row",
      fence: job.runs[1]?.run.fence,
    });
    expect(failed.endedAtMs).toBeGreaterThanOrEqual(failed.startedAtMs);
    expect(replica.warnings).toMatchObject([
      { code: "RUN_FAILED", cause: { message: "no\nsuch \u0000 row" } },
    ]);
  });

  test("shows as many ticks as it is told to", async () => {
    const job = new Scheduled(EVERY_MINUTE, { history: 3 });
    const schedule = job.start(job.fleet.add());
    await job.fleet.advance(301_000, 1_000);
    expect((await schedule.history()).map(({ tick }) => (tick.getTime() - START_MS) / 1_000)).toEqual([
      300, 240, 180,
    ]);
  });

  test("shows a run that is under way, and an error of any length and language", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const schedule = job.start(job.fleet.add());
    const { passed, open } = gate();
    job.body = async () => {
      await passed;
      throw new Error("日本語".repeat(400));
    };
    await job.fleet.advance(61_000, 1_000);
    expect(await schedule.history()).toMatchObject([{ outcome: "running" }]);
    expect(schedule.status().running).toBe(1);
    open();
    await job.fleet.advance(1_000);
    const [run] = await schedule.history();
    expect(run).toMatchObject({ outcome: "failed", error: expect.stringMatching(/^Error: 日本語.*…$/u) });
  });

  test("lasts as long as somebody looks after it", async () => {
    const job = new Scheduled("0 0 8 * *");
    const schedule = job.start(job.fleet.add());
    await job.fleet.advance(2.5 * 86_400_000, 600_000);
    expect(job.ticks).toEqual([43_200]);
    expect(await schedule.history()).toHaveLength(1);
  });
});

describe("stopping", () => {
  test("waits for the run, and begins nothing more", async () => {
    const job = new Scheduled();
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    const { passed, open } = gate();
    job.body = () => passed;
    await job.fleet.advance(1_100);
    let stopped = false;
    const stopping = schedule.stop().then(() => {
      stopped = true;
    });
    await job.fleet.advance(3_000);
    expect(stopped).toBe(false);
    expect(job.runs[0]?.run.signal.aborted).toBe(false);
    open();
    await job.fleet.advance(100);
    await stopping;
    expect(job.ticks).toEqual([1]);
    expect(schedule.status()).toMatchObject({ stopped: true, completed: 1 });
    expect(replica.clock.pendingTimers).toBeLessThanOrEqual(1);
  });

  test("aborts the run where that is asked for, and another replica takes it over", async () => {
    const job = new Scheduled(EVERY_MINUTE, { takeover: true });
    const [first, second] = [job.fleet.add(100), job.fleet.add()];
    const schedule = job.start(first);
    job.start(second);
    job.body = ({ signal }, replica) =>
      replica === first ? new Promise((_, reject) => signal.addEventListener("abort", reject)) : undefined;
    await job.fleet.advance(60_100, 100);
    const stopping = schedule.stop({ abort: true });
    await job.fleet.advance(1_000);
    await stopping;
    expect(job.runs).toMatchObject([{ replica: first }, { replica: second, run: { attempt: 2 } }]);
    expect(schedule.status()).toMatchObject({ interrupted: 1, failed: 0 });
    expect(first.warnings).toEqual([]);
  });

  test("by a signal", async () => {
    const job = new Scheduled();
    const controller = new AbortController();
    const schedule = job.start(job.fleet.add(), { signal: controller.signal });
    await job.fleet.advance(2_100);
    controller.abort();
    await job.fleet.advance(3_000);
    expect(job.ticks).toEqual([1, 2]);
    expect(schedule.status().stopped).toBe(true);
    const never = job.start(job.fleet.add(), { signal: AbortSignal.abort() });
    expect(never.status().stopped).toBe(true);
  });

  test("while it queues for a tick leaves no claim behind", async () => {
    const job = new Scheduled(EVERY_MINUTE, { takeover: true });
    const [first, second] = [job.fleet.add(100), job.fleet.add()];
    job.start(first);
    const schedule = job.start(second);
    job.body = () => new Promise(() => {});
    await job.fleet.advance(60_500, 100);
    const key = `job#tick:${new Date(START_MS + 60_000).toISOString()}`;
    expect(await first.locks.inspect(key)).toMatchObject({ heldCount: 1, waitingCount: 1 });
    const stopping = schedule.stop();
    await job.fleet.advance(100);
    await stopping;
    expect(await first.locks.inspect(key)).toMatchObject({ heldCount: 1, waitingCount: 0 });
  });

  test("closing the client gives the run its grace, then aborts it and writes that down", async () => {
    const job = new Scheduled(EVERY_MINUTE);
    const replica = job.fleet.add();
    const schedule = job.start(replica);
    job.body = ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", reject));
    await job.fleet.advance(61_000, 1_000);
    const closing = replica.locks.close({ graceMs: 5_000 });
    await job.fleet.advance(4_000);
    expect(job.runs[0]?.run.held).toBe(true);
    await job.fleet.advance(2_000);
    await closing;
    expect(job.runs[0]?.run.signal.reason).toMatchObject({ code: "LEASE_LOST", reason: "closed" });
    expect(schedule.status()).toMatchObject({ stopped: true, interrupted: 1 });
    expect(replica.clock.pendingTimers).toBe(0);
    const history = await job.start(job.fleet.add()).history();
    expect(history.map(({ outcome }) => outcome)).toEqual(["aborted"]);
    expect(() => job.start(replica)).toThrow(/closed/);
  });
});

describe("what is wrong with a schedule is said at once", () => {
  const locks = createLocks();
  const start = (name: string, cron: string, options: object = {}) =>
    locks.schedule(name, cron, () => {}, options as ScheduleOptions);

  test.each([
    [() => start("", EVERY_MINUTE), /name must be 1 to 512 bytes/],
    [() => start("x".repeat(451), EVERY_MINUTE), /name must be 1 to 450 bytes of UTF-8, not 451/],
    [() => start("a\nb", EVERY_MINUTE), /name must be well-formed/],
    [() => start("j", "every day"), /cron must be a pattern such as "0 3 \* \* \*", not "every day"/],
    [() => start("j", "61 * * * *"), /cron .*61/],
    [() => start("j", "? * * * *"), /must not contain "\?"/],
    [() => start("j", "2030-01-01T00:00:00"), /not the date/],
    [() => start("j", "0 0 30 2 *"), /matches no date/],
    [() => start("j", 5 as unknown as string), /cron must be a string/],
    [() => start("j", EVERY_MINUTE, { timezone: "Mars/Base" }), /timezone .* not "Mars\/Base"/],
    [() => start("j", EVERY_MINUTE, { timezone: "" }), /timezone must be a name/],
    [() => start("j", EVERY_MINUTE, { missed: "some" }), /missed must be one of "skip", "latest", "all"/],
    [() => start("j", EVERY_MINUTE, { maxMissed: 0 }), /maxMissed must be a whole number from 1 to 1000/],
    [() => start("j", EVERY_MINUTE, { lateMs: -1 }), /lateMs/],
    [() => start("j", EVERY_MINUTE, { overlap: "no" }), /overlap must be one of/],
    [() => start("j", EVERY_MINUTE, { takeover: 1 }), /takeover must be true or false/],
    [() => start("j", EVERY_MINUTE, { maxSkewMs: 1e9 }), /maxSkewMs/],
    [() => start("j", EVERY_MINUTE, { history: 0 }), /history/],
    [() => start("j", EVERY_MINUTE, { ttlMs: 1 }), /ttlMs/],
    [() => start("j", EVERY_MINUTE, { keepAlive: "yes" }), /keepAlive/],
    [() => start("j", EVERY_MINUTE, { signal: new AbortController() }), /signal must be an AbortSignal/],
    [() => locks.schedule("j", EVERY_MINUTE, null as never), /body must be a function/],
  ])("%#", (call, message) => {
    expect(call).toThrow(message);
    expect(call).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });

  test("a store that is not durable enough", () => {
    expect(() => start("j", EVERY_MINUTE, { durability: "quorum" })).toThrow(
      expect.objectContaining({ code: "DURABILITY_UNAVAILABLE" }),
    );
  });
});
