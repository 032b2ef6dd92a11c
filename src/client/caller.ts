import type { Deferred } from "../platform/index.ts";
import type { Lease } from "./lease.ts";

/** What a try comes to: a lease, or none because somebody else has it. */
export type Verdict = Lease | "contended";

/** Whoever awaits a lease, until there is one. */
export interface Caller extends Omit<Deferred<Verdict>, "promise"> {
  readonly waitMs: number;
  /** Whether contention is an answer and not an error. */
  readonly isTry: boolean;
  /** Told when the claim has to wait. */
  readonly onWaiting: OnWaiting;
}

export type OnWaiting = ((key: string) => void) | undefined;
