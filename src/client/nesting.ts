/** Calls for a key that come from a body which holds it: what they share, and which of them would wait for themselves. */

import type { HoldfastError } from "../store/index.ts";
import { type ClaimRequest, UNLIMITED } from "../store/index.ts";
import { isInBody, type SurroundingLease, surroundingLeases } from "./body.ts";
import { deadlockError } from "./claim-errors.ts";
import type { Heartbeat } from "./heartbeat.ts";
import type { Lease } from "./lease.ts";
import type { AcquireOptions, PermitOptions } from "./options.ts";
import { SharedClaim } from "./shared-claim.ts";

/** The lock that a call asks for. */
interface Wanted {
  readonly key: string;
  readonly limit: number;
  readonly reentrant: boolean;
}

export class Nesting {
  readonly #wanted: Wanted;
  readonly #weight: number;
  readonly #options: AcquireOptions & PermitOptions;
  readonly #heartbeat: Heartbeat;
  readonly #around: readonly SurroundingLease[];

  /** Undefined for a call that comes from no body which holds the key: nearly all of them. */
  static of(
    heartbeat: Heartbeat,
    wanted: Wanted,
    options: AcquireOptions & PermitOptions,
  ): Nesting | undefined {
    if (!isInBody()) return undefined;
    const around = surroundingLeases(heartbeat, wanted.key);
    return around.length === 0 ? undefined : new Nesting(heartbeat, wanted, options, around);
  }

  private constructor(
    heartbeat: Heartbeat,
    wanted: Wanted,
    options: AcquireOptions & PermitOptions,
    around: readonly SurroundingLease[],
  ) {
    this.#heartbeat = heartbeat;
    this.#wanted = wanted;
    this.#weight = options.permits ?? 1;
    this.#options = options;
    this.#around = around;
  }

  /** A lease on the claim of a body, if that claim allows all that this call asks for. Throws `LEASE_LOST` while it is being won again. */
  share(): Lease | undefined {
    if (!this.#wanted.reentrant) return undefined;
    for (const { heartbeat, lease } of this.#around) {
      const { claim } = lease;
      const isOurs = heartbeat === this.#heartbeat && claim instanceof SharedClaim;
      if (!isOurs || !this.#isCoveredBy(claim.request)) continue;
      lease.assertHeld();
      return claim.another();
    }
    return undefined;
  }

  #isCoveredBy({ weight, limit, id, token }: ClaimRequest): boolean {
    const { id: wantedId = id, token: wantedToken = token } = this.#options;
    const isSame = wantedId === id && wantedToken === token;
    return isSame && this.#weight <= weight && limit <= this.#wanted.limit;
  }

  /** Whether the call cannot be granted before the bodies have given back what they hold. */
  get neverFits(): boolean {
    const held = this.#held();
    const weight = held.reduce((sum, request) => sum + request.weight, this.#weight);
    return weight > held.reduce((least, { limit }) => Math.min(least, limit), this.#wanted.limit);
  }

  /**
   * Whether the call is granted at once or waits for its own body: a reader within a reader has to wait only behind a writer, which waits
   * for the outer reader.
   */
  get mustNotWait(): boolean {
    return [this.#wanted, ...this.#held()].every(({ limit }) => limit === UNLIMITED);
  }

  error(): HoldfastError {
    const { key, reentrant } = this.#wanted;
    return deadlockError(
      key,
      reentrant
        ? "The body's lease does not cover the call. Take the write side, or all permits, in the outermost body, with reentrant: true."
        : "Pass the lease on instead, or give the lock of each body the option reentrant: true.",
    );
  }

  /** The claims of the bodies: several leases may share one. */
  #held(): ClaimRequest[] {
    return [...new Set(this.#around.map(({ lease }) => lease.claim.request))];
  }
}
