import type { LiveClaim } from "./live-claim.ts";

/** What there is to a claim only while it waits in a queue, or asks again for what it has lost. */
export class Wait {
  readonly claim: LiveClaim;
  readonly id: string;
  /** The place in the heartbeat's index of waiting claims. */
  idHash = 0;
  idNext: this | undefined = undefined;
  /** When the latest request was sent that was answered with "waiting", or when the store was found to have lost the claim. */
  heardOfMs: number;
  /** The highest fence of the key that was heard of. */
  fence: bigint;

  constructor(claim: LiveClaim, heardOfMs: number, fence: bigint) {
    this.claim = claim;
    this.id = claim.request.id;
    this.heardOfMs = heardOfMs;
    this.fence = fence;
  }
}
