import type { Schedule, ScheduledRun, ScheduleOptions } from "holdfast";
import { Fleet, type Replica, START_MS } from "../../client/fleet.ts";

export const EVERY_SECOND = "* * * * * *";
export const EVERY_MINUTE = "* * * * *";
export const TTL_MS = 3_000;

export interface Run {
  readonly tickMs: number;
  readonly replica: Replica;
  readonly run: ScheduledRun;
}

/** A fleet whose replicas run one schedule, and what they have run. */
export class Scheduled {
  readonly fleet = new Fleet();
  readonly runs: Run[] = [];
  readonly cron: string;
  readonly options: ScheduleOptions;
  body: (run: ScheduledRun, replica: Replica) => unknown = () => {};

  constructor(cron = EVERY_SECOND, options: ScheduleOptions = {}) {
    this.cron = cron;
    this.options = { ttlMs: TTL_MS, ...options };
  }

  start(replica: Replica, options: ScheduleOptions = {}): Schedule {
    const body = (run: ScheduledRun) => {
      this.runs.push({ tickMs: run.tick.getTime(), replica, run });
      return this.body(run, replica);
    };
    return replica.locks.schedule("job", this.cron, body, { ...this.options, ...options });
  }

  /** Seconds after the beginning, in the order in which they ran. */
  get ticks(): number[] {
    return this.runs.map(({ tickMs }) => (tickMs - START_MS) / 1_000);
  }
}

export const seconds = (count: number, from = 1) => Array.from({ length: count }, (_, index) => from + index);
