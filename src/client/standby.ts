/**
 * What stands in for the heartbeat while the thread of the application does not get to it: the contract between a client and
 * `holdfast/thread`. docs/decisions/0018-heartbeat-thread.md has the design and the races.
 */
import type { ClaimRef, LossReason } from "../store/index.ts";
import type { ClientSettings } from "./options.ts";

/** A second heartbeat, for the option `thread` of a client. Every client starts one of its own. */
export interface HeartbeatThread {
  /** @throws HoldfastError `INVALID_ARGUMENT` where it cannot serve a client with these settings. */
  start(
    client: Pick<ClientSettings, "clock" | "clockDrift" | "requestTimeoutMs" | "onWarning">,
  ): StandbyHeartbeat;
}

/** The second heartbeat of one client. */
export interface StandbyHeartbeat {
  /** Looks after a claim from now on, until it is dropped. `onLoss` tells that `loss` has changed, when this thread gets to it. */
  keep(claim: StandbyTerms, onLoss: () => void): KeptClaim;
  /** Ends it. Claims stay as they are. */
  close(): Promise<void>;
}

/** A claim that is held. Times are those of the client's monotonic clock. */
export interface StandbyTerms {
  readonly ref: ClaimRef;
  readonly fence: bigint;
  readonly ttlMs: number;
  /** How often the first heartbeat renews it. */
  readonly renewEveryMs: number;
  readonly provenUntilMs: number;
  /** The end of `maxHoldMs`. */
  readonly holdUntilMs: number;
}

/** What the two heartbeats tell each other about a claim. All of it can be read at any moment, and waits for nothing. */
export interface KeptClaim {
  /** Until when the second heartbeat has proven the lease by answers of its own; in the past when it has not. */
  readonly provenUntilMs: number;
  /** Why the lease is over, where the second heartbeat was told so or has ended it. */
  readonly loss: StandbyLoss | undefined;
  /** The first heartbeat has proven the lease until then. */
  prove(untilMs: number): void;
  /** The lease is over, or somebody else's business. Nothing that the second heartbeat finds out counts any more. */
  drop(): void;
}

export type StandbyLoss = Extract<LossReason, "gone" | "taken-over" | "max-hold" | "blocked">;
