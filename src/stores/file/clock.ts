/**
 * The clock of a folder: the kernel's monotonic clock, which all processes of the machine share, plus an offset that the
 * folder keeps. The wall clock counts only when the folder is made, and after a restart of the machine while no record has a claim.
 *
 * After a restart time goes on from the folder's latest change, plus the time since the start of the machine. At least that
 * much time has passed, so no claim ends early. docs/decisions/0011-file-store.md has the reasons.
 */
import { readFileSync } from "node:fs";

/** The time that a folder keeps. */
export interface KeptTime {
  /** Names the run of the kernel for which the offset is right. Empty on systems that have no such name. */
  readonly boot: string;
  readonly offsetMs: number;
  /** The folder's time at its latest change, and the monotonic clock at that moment. */
  readonly lastMs: number;
  readonly lastMonotonicMs: number;
}

/** The clocks of the machine. */
export interface MachineTime {
  readonly boot: string;
  readonly monotonicMs: number;
  readonly wallMs: number;
}

/** The time of a new folder. */
export function firstTime({ boot, monotonicMs, wallMs }: MachineTime): KeptTime {
  return { boot, offsetMs: wallMs - monotonicMs, lastMs: wallMs, lastMonotonicMs: monotonicMs };
}

/** The time of a folder that is opened again: the same object in the same run of the kernel. */
export function resumedTime(kept: KeptTime, { boot, monotonicMs }: MachineTime): KeptTime {
  // A system that does not name its runs shows a restart by a monotonic clock that has gone back.
  const isSameRun = boot === kept.boot && (boot !== "" || monotonicMs >= kept.lastMonotonicMs);
  if (isSameRun) return kept;
  return { boot, offsetMs: kept.lastMs, lastMs: kept.lastMs + monotonicMs, lastMonotonicMs: monotonicMs };
}

/** Moves the time forward to the wall clock. Allowed only while no record has a claim. */
export function alignedTime(kept: KeptTime, machine: MachineTime): KeptTime {
  return machine.wallMs > kept.offsetMs + machine.monotonicMs ? firstTime(machine) : kept;
}

/** The folder's present time. It never goes back. */
export function timeOf(kept: KeptTime, monotonicMs: number): number {
  return Math.max(kept.lastMs, kept.offsetMs + monotonicMs);
}

/** The monotonic clock of the machine, without the offset that a container may have. */
export function readMonotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6 - namespaceOffsetMs;
}

const namespaceOffsetMs = namespaceOffset(readOptional("/proc/self/timens_offsets"));

/** The offset of this process's monotonic clock in milliseconds, from the text of `/proc/self/timens_offsets`. */
export function namespaceOffset(text: string): number {
  const [, seconds = "0", nanoseconds = "0"] = /^monotonic\s+(-?\d+)\s+(-?\d+)/m.exec(text) ?? [];
  return Number(seconds) * 1e3 + Number(nanoseconds) / 1e6;
}

export function thisMachine(): MachineTime {
  return { boot: readBoot(), monotonicMs: readMonotonicMs(), wallMs: Date.now() };
}

/** Names the present run of the kernel. Empty on systems that have no such name. */
export function readBoot(): string {
  return readOptional("/proc/sys/kernel/random/boot_id").trim();
}

function readOptional(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
