/**
 * Makes records and their claims.
 *
 * They are instances of classes and copied arrays, not literals, for one reason: V8 counts how many objects of each
 * literal live long, and when most do, as where very many leases are held, it puts all later ones into the old
 * generation. Then the short-lived ones are old garbage, and keep all that they refer to: 1,150 bytes a lock cycle.
 */

import type { ClaimRequest } from "../store/index.ts";
import type { IdIndex } from "./id-index.ts";
import type { LockRecord, RecordClaim } from "./record.ts";

/** The one empty list of all records. It is never added to: an empty list is replaced by `listOf` the first claim. */
const nothing: RecordClaim[] = [];
const oneClaim: readonly (RecordClaim | undefined)[] = [undefined];

class EmptyRecord implements LockRecord {
  fence = 0n;
  heldWeight = 0;
  arrivals = 0;
  held = nothing;
  limits = nothing;
  waiting = nothing;
  queue = nothing;
  byId: IdIndex<RecordClaim> | undefined = undefined;
}

class NewClaim implements RecordClaim {
  readonly id: string;
  token: string;
  readonly weight: number;
  readonly limit: number;
  readonly priority: number;
  ttlMs: number;
  owner: string;
  info: string;
  application: string;
  readonly arrival: number;
  fence = 0n;
  agreedBy = "";
  acquiredAtMs = 0;
  expiresAtMs: number;
  promisedUntilMs = 0;
  etcdLease = "";
  expirySlot = 0;
  rankSlot = 0;
  idHash = 0;
  idNext: RecordClaim | undefined = undefined;

  constructor(request: ClaimRequest, arrival: number, expiresAtMs: number) {
    this.id = request.id;
    this.token = request.token;
    this.weight = request.weight;
    this.limit = request.limit;
    this.priority = request.priority;
    this.ttlMs = request.ttlMs;
    this.owner = request.owner;
    this.info = request.info;
    this.application = request.application;
    this.arrival = arrival;
    this.expiresAtMs = expiresAtMs;
  }
}

export function emptyRecord(): LockRecord {
  return new EmptyRecord();
}

/**
 * A list with room for one, which is what most records have: the first push to an empty list makes room for 17. A list that
 * has become empty is used again.
 */
export function listOf(claim: RecordClaim, emptied = nothing): RecordClaim[] {
  const list = emptied === nothing ? (oneClaim.slice() as RecordClaim[]) : emptied;
  list[0] = claim;
  claim.expirySlot = 0;
  claim.rankSlot = 0;
  return list;
}

/** A new claim, waiting. */
export function newClaim(request: ClaimRequest, arrival: number, expiresAtMs: number): RecordClaim {
  return new NewClaim(request, arrival, expiresAtMs);
}
