import type { ClaimRef } from "../../store/index.ts";
import type { Vote } from "./ballot.ts";
import type { Bid } from "./bids.ts";
import type { NodeAnswers } from "./tally.ts";

/** One call about one claim: what was known when it was sent, and what came back. */
export interface Hearing {
  readonly ref: ClaimRef;
  readonly bid: Bid;
  /** The tokens that went out. */
  readonly tokens: readonly (string | undefined)[];
  /** The bid's clock when it was sent. */
  readonly startedAt: number;
  readonly sentMs: number;
  /** The nodes that are believed to hold the claim. What they answer is waited for. */
  readonly awaited: readonly number[];
  answers: NodeAnswers;
  /** The same as it came, with the reasons of those that failed. */
  votes: readonly Vote<unknown>[];
  /** What came after the others had decided. */
  readonly late: NodeAnswers;
  /** Whether a majority still holds the lease that was handed out. */
  proven: boolean;
}
