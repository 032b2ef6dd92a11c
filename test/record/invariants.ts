/** The invariants of a record between any two operations. */
import { strict as assert } from "node:assert";
import type { LockRecord, RecordClaim } from "../../src/record/record.ts";

type SlotName = "expirySlot" | "rankSlot";
type Compare = (a: RecordClaim, b: RecordClaim) => number;

const byExpiry: Compare = (a, b) => a.expiresAtMs - b.expiresAtMs;
const byLimit: Compare = (a, b) => a.limit - b.limit;
const byTurn: Compare = (a, b) => b.priority - a.priority || a.arrival - b.arrival;

/** Throws an AssertionError that names the broken invariant. */
export function assertInvariants(record: LockRecord): void {
  assertHeap("held", record.held, "expirySlot", byExpiry);
  assertHeap("limits", record.limits, "rankSlot", byLimit);
  assertHeap("waiting", record.waiting, "expirySlot", byExpiry);
  assertHeap("queue", record.queue, "rankSlot", byTurn);
  assertSameClaims("held and limits", record.held, record.limits);
  assertSameClaims("waiting and queue", record.waiting, record.queue);

  const unfenced = record.held.find((claim) => claim.fence <= 0n);
  assert(unfenced === undefined, `held ${unfenced?.id} has no fence`);
  const fenced = record.queue.find((claim) => claim.fence !== 0n);
  assert(fenced === undefined, `waiting ${fenced?.id} has a fence`);
  const fences = new Set(record.held.map((claim) => claim.fence));
  assert(fences.size === record.held.length, "two held claims share a fence");
  for (const fence of fences) assert(fence <= record.fence, "a held fence is above the record's");

  assertIndex(record, [...record.held, ...record.queue]);
  assertLimits(record);
}

function assertHeap(name: string, heap: readonly RecordClaim[], slot: SlotName, compare: Compare): void {
  for (const [index, claim] of heap.entries()) {
    // Messages are made only when needed: this runs for every claim after every step.
    if (claim[slot] !== index) assert.fail(`${name}: ${claim.id} is at ${index} and believes ${claim[slot]}`);
    const parent = heap[(index - 1) >> 1];
    const inOrder = parent === undefined || compare(parent, claim) <= 0;
    if (!inOrder) assert.fail(`${name}: ${claim.id} at ${index} belongs before its parent`);
  }
}

function assertSameClaims(names: string, a: readonly RecordClaim[], b: readonly RecordClaim[]): void {
  const inA = new Set(a);
  const same = a.length === b.length && inA.size === a.length && b.every((claim) => inA.has(claim));
  assert(same, `${names} do not hold the same claims`);
}

function assertIndex(record: LockRecord, claims: readonly RecordClaim[]): void {
  const ids = new Set(claims.map((claim) => claim.id));
  assert(ids.size === claims.length, "two claims share an id");
  if (record.byId === undefined) {
    assert(claims.length <= 8, `${claims.length} claims are searched one by one`);
    return;
  }
  assert(record.byId.size === claims.length, "the index has an entry too many or too few");
  const lost = claims.find((claim) => record.byId?.find(claim.id) !== claim);
  assert(lost === undefined, `the index does not lead to ${lost?.id}`);
}

function assertLimits(record: LockRecord): void {
  const weight = record.held.reduce((sum, claim) => sum + claim.weight, 0);
  assert(record.heldWeight === weight, `heldWeight is ${record.heldWeight}, the sum is ${weight}`);
  const limit = Math.min(...record.held.map((claim) => claim.limit));
  assert(weight <= limit, `${weight} is held within a limit of ${limit}`);
  const head = record.queue[0];
  if (head === undefined) return;
  const headFits = weight + head.weight <= Math.min(limit, head.limit);
  assert(!headFits, `${head.id} is the head of the queue, fits, and was not granted`);
}
