/** How quick a folder's disk is of late, and whether its answers are worth staying awake for. */
import { StayAwake } from "../../platform/index.ts";
import type { Pace } from "./protocol.ts";

/** How much the latest change counts in what the disk takes of late. */
const SMOOTHING = 0.1;
/** A disk that takes longer is not waited for awake, though it answers releases sooner. docs/decisions/0027-both-threads-awake.md has the figures. */
const AWAKE_MS = 1;

export class DiskPace {
  readonly #awake: StayAwake;
  #diskMs = 0;
  #isAlone = false;

  constructor(awake = new StayAwake({ limitMs: AWAKE_MS })) {
    this.#awake = awake;
  }

  /** How long the disk takes for a change, in milliseconds. */
  get diskMs(): number {
    return this.#diskMs;
  }

  told({ diskMs, isAlone }: Pace): void {
    this.#diskMs += (diskMs - this.#diskMs) * SMOOTHING;
    this.#isAlone = isAlone;
  }

  /** A request has been sent. Returns what its answer is awaited by, if this process stays awake for it. Where others use the folder, the processor may be theirs as well. */
  sent(): number | undefined {
    return this.#isAlone && this.#diskMs < AWAKE_MS ? this.#awake.sent() : undefined;
  }

  /** A request has been answered, or has failed. */
  answered(wait: number | undefined): void {
    if (wait !== undefined) this.#awake.answered(wait);
  }
}
