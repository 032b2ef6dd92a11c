import { type Clock, systemClock } from "../../platform/index.ts";
import {
  checkFraction,
  checkInteger,
  checkOptionNames,
  DEFAULT_CLOCK_DRIFT,
  type Durability,
} from "../../store/index.ts";

export const MAX_NODES = 99;

export interface QuorumOptions {
  /** The name in messages and metrics. Default "quorum". */
  readonly name?: string;
  /** The time for a node to answer a call before it counts as failed. 1 to 60,000. Default 200. */
  readonly nodeTimeoutMs?: number;
  /** About how long a claim keeps a minority of nodes before it gives way. 1 to 10,000. Default 20. */
  readonly backoffMs?: number;
  /** The allowed difference in rate between clocks, as in `createLocks`. 0 to 0.5. Default 0.001. */
  readonly clockDrift?: number;
  /** The durability of the fences that the nodes keep together. Default "ephemeral". */
  readonly durability?: Durability;
  /** The source of time. Default: this machine. */
  readonly clock?: Clock;
  /** The source of random numbers from 0 up to 1. Default: `Math.random`. */
  readonly random?: () => number;
}

export interface RedlockOptions extends Pick<QuorumOptions, "nodeTimeoutMs" | "backoffMs" | "clockDrift"> {
  /** The beginning of all keys of this store, on every server. No braces. Default "holdfast". */
  readonly keyPrefix?: string;
  /** The number of claims that may wait for one key before `QUEUE_FULL`. Default 10,000. */
  readonly maxWaiters?: number;
  /**
   * Set "quorum" if every server has `appendonly yes` and `appendfsync always`, so that none forgets a grant.
   * Default "ephemeral".
   */
  readonly durability?: "ephemeral" | "quorum";
}

export function checkOptions(options: QuorumOptions): Required<QuorumOptions> {
  checkOptionNames("quorumStore", options, {
    name: true,
    nodeTimeoutMs: true,
    backoffMs: true,
    clockDrift: true,
    durability: true,
    clock: true,
    random: true,
  });
  return {
    name: options.name ?? "quorum",
    durability: options.durability ?? "ephemeral",
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
    clockDrift: checkFraction("clockDrift", options.clockDrift ?? DEFAULT_CLOCK_DRIFT, 0.5),
    nodeTimeoutMs: checkInteger("nodeTimeoutMs", options.nodeTimeoutMs ?? 200, 1, 60_000),
    backoffMs: checkInteger("backoffMs", options.backoffMs ?? 20, 1, 10_000),
  };
}
