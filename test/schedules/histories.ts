/**
 * Random histories of a schedule: replicas whose clocks differ by up to three seconds each way, on networks that delay, lose
 * and repeat calls, die and are replaced, over one store, in virtual time. A seed repeats its history exactly.
 */
import type { RunRecord, ScheduledRun, ScheduleOptions } from "holdfast";
import { Fleet, type Replica, START_MS } from "../client/fleet.ts";
import { Random } from "../simulation/random.ts";

const MAX_SKEW_MS = 3_000;
const TTL_MS = 2_000;
const TICKS = 25;
/** From this tick on all are expected to run: before it, whose clock began the schedule decides. */
const FIRST_TICK_S = 5;

export interface ScheduleHistory {
  /** Violations. */
  readonly faults: readonly string[];
  readonly runs: number;
  readonly crashes: number;
  /** Ticks that nobody ran because whoever had begun was dead. */
  readonly cutShort: number;
  /** Runs after the first of a tick. */
  readonly repeated: number;
}

interface Run {
  readonly tickS: number;
  readonly replica: Replica;
  readonly run: ScheduledRun;
  ended: boolean;
}

export async function runScheduleHistory(seed: number, takeover: boolean): Promise<ScheduleHistory> {
  const random = new Random(seed);
  const fleet = new Fleet();
  const runs: Run[] = [];
  let crashes = 0;
  const options: ScheduleOptions = {
    takeover,
    overlap: random.pick(["allow", "queue"] as const),
    ttlMs: TTL_MS,
    lateMs: 60_000,
    history: 100,
  };

  function start(): Replica {
    const replica = fleet.add(random.between(-MAX_SKEW_MS, MAX_SKEW_MS));
    const slowMs = random.pick([0, 20, 200]);
    replica.faults = () => ({
      beforeMs: random.between(0, slowMs),
      afterMs: random.between(0, slowMs),
      ...(random.chance(0.02) ? { lose: random.pick(["request", "reply"] as const) } : {}),
      ...(random.chance(0.02) ? { repeatAfterMs: random.between(0, 1_000) } : {}),
    });
    const runMs = random.pick([0, 0, 1, 300]);
    replica.locks.schedule("job", "* * * * * *", (run) => ran(replica, run, runMs), options);
    return replica;
  }

  async function ran(replica: Replica, run: ScheduledRun, runMs: number): Promise<void> {
    const entry = { tickS: (run.tick.getTime() - START_MS) / 1_000, replica, run, ended: false };
    runs.push(entry);
    if (runMs > 0) await new Promise<void>((resolve) => replica.clock.setTimer(runMs, resolve));
    entry.ended = true;
  }

  for (let each = 0; each < 4; each++) start();
  while (fleet.nowMs < (FIRST_TICK_S + TICKS) * 1_000) {
    await fleet.advance(random.between(50, 1_500), 25);
    const living = fleet.replicas.filter(({ dead }) => !dead);
    if (living.length > 1 && random.chance(0.3)) {
      random.pick(living).crash();
      crashes++;
    }
    if (living.length < 4) start();
  }
  // The slowest clock has to get there, and the dead have to be noticed.
  await fleet.advance(MAX_SKEW_MS + 4 * TTL_MS, 25);
  const reader = fleet.add();
  const reading = reader.locks.schedule("job", "0 0 1 1 *", () => {}, options).history();
  await fleet.advance(100);
  return { ...judged(runs, await reading, takeover), runs: runs.length, crashes };
}

function judged(runs: readonly Run[], history: readonly RunRecord[], takeover: boolean) {
  const faults: string[] = [];
  let cutShort = 0;
  let repeated = 0;
  for (let tickS = FIRST_TICK_S; tickS < FIRST_TICK_S + TICKS; tickS++) {
    const of = runs.filter((run) => run.tickS === tickS);
    const records = history.filter(({ tick }) => tick.getTime() === START_MS + tickS * 1_000);
    const what = `tick ${tickS} ran ${of.length} times`;
    repeated += Math.max(0, of.length - 1);
    if (takeover) {
      if (of.length === 0) faults.push(what);
      if (!records.some(({ outcome }) => outcome === "completed"))
        faults.push(`tick ${tickS} is not completed`);
      of.forEach(({ run, replica }, index) => {
        const before = of[index - 1];
        if (before === undefined) return;
        if (run.fence <= before.run.fence) faults.push(`${what}, and the fence did not grow`);
        if (before.replica === replica && !before.ended)
          faults.push(`${what}, beside each other in one process`);
      });
    } else if (of.length > 1) faults.push(what);
    else if (of.length === 0) {
      // At most once: nobody may run it again once somebody has said that it begins.
      if (records.some(({ outcome }) => outcome === "lost")) cutShort++;
      else faults.push(`${what}, and nobody had begun`);
    }
  }
  return { faults, cutShort, repeated };
}
