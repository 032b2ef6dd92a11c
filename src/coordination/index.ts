export {
  type Election,
  type ElectionOptions,
  type ElectionStatus,
  type LeadBody,
  type LeadOptions,
  LockElection,
  type Term,
} from "./election/election.ts";
export type { Leader, LeaderView, ObserveOptions } from "./election/leader-watch.ts";
export { type Once, type OnceOptions, WindowedOnce } from "./once.ts";
export { CronSchedule } from "./schedule/cron-schedule.ts";
export { isScheduleNote, type RunOutcome, type RunRecord } from "./schedule/run-note.ts";
export type { Schedule, ScheduleStatus, ScheduleStopOptions } from "./schedule/schedule.ts";
export { checkScheduleName, type ScheduleOptions } from "./schedule/schedule-options.ts";
export type { ScheduleBody, ScheduledRun } from "./schedule/tick-run.ts";
