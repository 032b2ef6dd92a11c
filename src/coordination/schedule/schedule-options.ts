/** What a schedule can be told, resolved once into complete settings. */

import { type LockSettings, resolveLockOptions } from "../../client/index.ts";
import type { Durability, Store } from "../../store/index.ts";
import {
  checkBoolean,
  checkChoice,
  checkInteger,
  checkKey,
  checkOptionNames,
  HoldfastError,
  invalid,
} from "../../store/index.ts";

/** Options of `locks.schedule`. Replicas of one schedule should have the same. */
export interface ScheduleOptions {
  /** The time zone in which the pattern is read, by its IANA name. Default "UTC", whatever the machine is set to. */
  readonly timezone?: string;
  /**
   * What becomes of ticks that nobody ran in time, because no replica or no store was there: `"skip"` leaves them out, `"latest"` runs
   * the latest of them once, `"all"` runs the latest `maxMissed` of them, one after the other in time. Default "skip".
   */
  readonly missed?: "skip" | "latest" | "all";
  /** How many missed ticks `missed: "all"` runs at most. 1 to 1,000. Default 100. */
  readonly maxMissed?: number;
  /** How late, by a replica's own clock, a tick may begin before it counts as missed. 1,000 to 600,000. Default 10,000. */
  readonly lateMs?: number;
  /**
   * What becomes of a tick whose time comes while an earlier run is not over on any replica: `"skip"` leaves it out, `"queue"` runs
   * it afterwards, `"allow"` runs it beside. Default "skip".
   */
  readonly overlap?: "skip" | "queue" | "allow";
  /**
   * Whether another replica runs a tick again whose runner died or lost its lease in the middle: then a tick runs at least
   * once, otherwise at most once. Default false.
   */
  readonly takeover?: boolean;
  /**
   * By how much the clocks of two replicas may differ. Beyond it a tick may be left out; none runs twice because of it. 0 to 60,000.
   * Default 10,000.
   */
  readonly maxSkewMs?: number;
  /** How long the claim of a tick lives after its runner's last heartbeat, so how soon a death is noticed. Default 30,000. */
  readonly ttlMs?: number;
  /** How many ticks that ran `history` remembers, and how many that were skipped. 1 to 100. Default 20. */
  readonly history?: number;
  /** Whether the schedule alone keeps the process alive. Default false. */
  readonly keepAlive?: boolean;
  /** The least durability that the store must have. Default: whatever the store has. */
  readonly durability?: Durability;
  /** Stops the schedule, and aborts a running body, when it aborts. */
  readonly signal?: AbortSignal;
}

/** The resolved options of a schedule. */
export interface ScheduleSettings {
  readonly timezone: string;
  readonly missed: "skip" | "latest" | "all";
  readonly maxMissed: number;
  readonly lateMs: number;
  readonly overlap: "skip" | "queue" | "allow";
  readonly takeover: boolean;
  readonly maxSkewMs: number;
  readonly history: number;
  readonly keepAlive: boolean;
  /** Of the claims of ticks. */
  readonly lock: LockSettings;
}

const scheduleOptionNames: Readonly<Record<keyof ScheduleOptions, true>> = {
  timezone: true,
  missed: true,
  maxMissed: true,
  lateMs: true,
  overlap: true,
  takeover: true,
  maxSkewMs: true,
  ttlMs: true,
  history: true,
  keepAlive: true,
  durability: true,
  signal: true,
};

/** What is added to a schedule's name has to fit into a key. */
const MAX_NAME_BYTES = 450;

export function checkScheduleName(name: string): string {
  const bytes = typeof name === "string" ? Buffer.byteLength(name) : 0;
  if (bytes > MAX_NAME_BYTES) {
    throw invalid(`name must be 1 to ${MAX_NAME_BYTES} bytes of UTF-8, not ${bytes}.`);
  }
  try {
    return checkKey(name);
  } catch (error) {
    throw invalid(HoldfastError.from(error).message.replace(/^key /, "name "));
  }
}

export function resolveScheduleOptions(
  options: ScheduleOptions,
  name: string,
  store: Store,
): ScheduleSettings {
  checkOptionNames("schedule", options, scheduleOptionNames);
  const { timezone = "UTC", missed = "skip", maxMissed = 100, lateMs = 10_000, overlap = "skip" } = options;
  const { takeover = false, maxSkewMs = 10_000, ttlMs = 30_000, history = 20, keepAlive = false } = options;
  const { durability, signal } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw invalid("signal must be an AbortSignal; pass controller.signal, not the controller.");
  }
  const lockOptions = { ttlMs, ...(durability === undefined ? {} : { durability }) };
  return {
    timezone,
    missed: checkChoice("missed", missed, ["skip", "latest", "all"]),
    maxMissed: checkInteger("maxMissed", maxMissed, 1, 1_000),
    lateMs: checkInteger("lateMs", lateMs, 1_000, 600_000),
    overlap: checkChoice("overlap", overlap, ["skip", "queue", "allow"]),
    takeover: checkBoolean("takeover", takeover),
    maxSkewMs: checkInteger("maxSkewMs", maxSkewMs, 0, 60_000),
    history: checkInteger("history", history, 1, 100),
    keepAlive: checkBoolean("keepAlive", keepAlive),
    lock: resolveLockOptions(lockOptions, name, store),
  };
}
