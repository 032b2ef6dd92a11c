/** A schedule as the application sees it. */
import type { HoldfastError } from "../../store/index.ts";
import type { RunOutcome, RunRecord } from "./run-note.ts";

/** What one replica knows of its schedule. */
export interface ScheduleStatus {
  readonly name: string;
  /** The next tick by this replica's clock. Absent when there is none, or the schedule is stopped. */
  readonly next?: Date;
  /** How many bodies run here now. */
  readonly running: number;
  /** Runs on this replica so far, by how they ended. */
  readonly completed: number;
  readonly failed: number;
  /** Runs on this replica that lost their lease or were aborted. */
  readonly interrupted: number;
  /** Ticks that this replica left out because an earlier run was not over. */
  readonly overlapped: number;
  /** Ticks that this replica did not see to because they were too late here. Others may have run them. */
  readonly missed: number;
  /** Whether the store answered when it was last asked. While it does not, nobody runs. */
  readonly available: boolean;
  /** What the store failed with last, while it is not available. */
  readonly lastError?: HoldfastError;
  /** The last run on this replica. */
  readonly last?: { readonly tick: Date; readonly outcome: RunOutcome };
  readonly stopped: boolean;
}

export interface ScheduleStopOptions {
  /** Whether running bodies are told to stop, by their signal. They are waited for in any case. Default false. */
  readonly abort?: boolean;
}

/** A schedule on this replica. */
export interface Schedule extends AsyncDisposable {
  readonly name: string;
  /** What this replica knows. Asks the store nothing. */
  status(): ScheduleStatus;
  /** The latest runs of all replicas, the newest first. */
  history(): Promise<readonly RunRecord[]>;
  /** Begins nothing any more, and resolves when what runs here has ended. */
  stop(options?: ScheduleStopOptions): Promise<void>;
}
