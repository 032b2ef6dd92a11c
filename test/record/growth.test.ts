/**
 * Cost without a clock: every look at a stored claim or at a place in a list is counted, so that an operation that
 * starts to walk through its claims fails here, on any machine and under any load.
 */
import { expect, test } from "vitest";
import { IdIndex } from "../../src/record/id-index.ts";
import {
  acquire,
  emptyRecord,
  type LockRecord,
  type RecordClaim,
  release,
  renew,
  settle,
} from "../../src/record/record.ts";
import { type ClaimRequest, UNLIMITED } from "../../src/store/store.ts";
import { claimRequest } from "./claim-request.ts";

const CLAIMS = 10_000;

/**
 * What one operation may look at among 10,000 claims. The costliest, a claim that joins and leaves the queue again,
 * makes about 320 looks: a few at each of 14 levels of its heaps. Walking through all claims once would be 10,000.
 */
const MOST_LOOKS = 500;

interface Meter {
  readonly record: LockRecord;
  /** How much the operation looked at. */
  looks(operation: (record: LockRecord) => unknown): number;
}

/** The same record, except that its lists and claims count how often they are read. */
function metered(plain: LockRecord): Meter {
  let looks = 0;
  const counting = <T extends object>(target: T): T =>
    new Proxy(target, {
      get(object, name, receiver) {
        looks += 1;
        return Reflect.get(object, name, receiver);
      },
    });
  const claims = new Map([...plain.held, ...plain.queue].map((claim) => [claim, counting(claim)]));
  const standIn = (claim: RecordClaim) => claims.get(claim) ?? claim;
  const list = (heap: readonly RecordClaim[]) => counting(heap.map(standIn));
  const record: LockRecord = {
    ...plain,
    held: list(plain.held),
    limits: list(plain.limits),
    waiting: list(plain.waiting),
    queue: list(plain.queue),
    byId: new IdIndex(),
  };
  for (const claim of [...(plain.byId?.values() ?? [])]) record.byId?.add(standIn(claim));
  return {
    record,
    looks(operation) {
      looks = 0;
      operation(record);
      return looks;
    },
  };
}

/** One holder that all others wait for, or as many holders as there are claims. */
function crowd(asked: (index: number) => Partial<ClaimRequest>): LockRecord {
  const record = emptyRecord();
  for (let index = 0; index < CLAIMS; index += 1) {
    acquire(record, claimRequest(`c${index}`, asked(index)), CLAIMS, turnAt(0));
  }
  return record;
}

const turnAt = (nowMs: number) => ({ nowMs, expiredMs: nowMs, stamp: 0n, granted: [] });
const refTo = (index: number) => ({ key: "k", id: `c${index}`, token: `c${index}` });

/** Claims all over the crowd: its ends, its middle, and some in between. */
const samples = [0, 1, 2, 17, 500, 4_999, 5_000, 7_777, CLAIMS - 2, CLAIMS - 1];

/** Lives of many lengths, in an order that is neither sorted nor reversed. */
const mixedTtlMs = (index: number) => 1_000_000 + ((index * 7_919) % CLAIMS);

const crowds = [
  { name: "10,000 waiters", record: () => crowd((index) => ({ ttlMs: mixedTtlMs(index) })) },
  {
    name: "10,000 waiters of many priorities",
    record: () => crowd((index) => ({ ttlMs: mixedTtlMs(index), priority: (index * 31) % 997 })),
  },
  {
    name: "10,000 readers",
    record: () => crowd((index) => ({ ttlMs: mixedTtlMs(index), limit: UNLIMITED })),
  },
  {
    name: "10,000 permit holders of many limits",
    record: () => crowd((index) => ({ ttlMs: mixedTtlMs(index), limit: CLAIMS + ((index * 31) % 997) })),
  },
];

const operations: readonly { name: string; run: (record: LockRecord, index: number) => unknown }[] = [
  { name: "settle", run: (record) => settle(record, turnAt(1)) },
  { name: "renew", run: (record, index) => renew(record, { ...refTo(index), ttlMs: 5_000_000 }, turnAt(1)) },
  {
    name: "acquire again",
    run: (record, index) => {
      const { weight, limit, priority, id } = record.byId!.find(`c${index}`)!;
      const again = claimRequest(id, { weight, limit, priority, token: id, ttlMs: 6_000_000 });
      return acquire(record, again, CLAIMS, turnAt(1));
    },
  },
  {
    name: "try",
    run: (record, index) =>
      acquire(record, claimRequest("try", { wait: false, priority: index }), 0, turnAt(1)),
  },
  {
    name: "acquire in a full queue",
    run: (record, index) => acquire(record, claimRequest("full", { priority: index }), 0, turnAt(1)),
  },
  {
    name: "acquire and wait",
    run: (record, index) => {
      const request = claimRequest(`wait${index}`, { priority: index, ttlMs: 6_000_000 });
      return acquire(record, request, 2 * CLAIMS, turnAt(1));
    },
  },
  {
    name: "acquire shared",
    run: (record, index) => {
      const request = claimRequest(`shared${index}`, { limit: UNLIMITED, ttlMs: 6_000_000 });
      return acquire(record, request, 2 * CLAIMS, turnAt(1));
    },
  },
  { name: "release", run: (record, index) => release(record, refTo(index), turnAt(1)) },
];

for (const { name, record } of crowds) {
  test(`record: among ${name}, no operation looks at more than a few`, () => {
    const meter = metered(record());
    for (const operation of operations) {
      for (const index of samples) {
        const looks = meter.looks((record) => operation.run(record, index));
        expect(looks, `${operation.name} of c${index}`).toBeLessThan(MOST_LOOKS);
      }
    }
  });

  test(`record: among ${name}, one that expires costs no more than a few looks`, () => {
    const meter = metered(record());
    const looks = meter.looks((record) => settle(record, turnAt(1_000_000)));
    expect(meter.record.held.length + meter.record.queue.length).toBe(CLAIMS - 1);
    expect(looks).toBeLessThan(MOST_LOOKS);
  });

  test(`record: ${name} that expire together cost a few looks each`, () => {
    const meter = metered(record());
    const looks = meter.looks((record) => settle(record, turnAt(9_000_000)));
    expect(meter.record.held.length + meter.record.queue.length).toBe(0);
    expect(looks).toBeLessThan(CLAIMS * MOST_LOOKS);
  });
}

test("record: one more reader among 10,000 of the same kind moves none of them", () => {
  const meter = metered(crowd(() => ({ limit: UNLIMITED, ttlMs: 1_000 })));
  const one = claimRequest("new", { limit: UNLIMITED, ttlMs: 1_000 });
  // Equal claims stay where they are. That takes 30 looks; sifting one up through a single heap adds 26 to it.
  expect(meter.looks((record) => acquire(record, one, 0, turnAt(0)))).toBeLessThan(45);
});

test("record: 10,000 readers let in together cost a few looks each", () => {
  const plain = crowd((index) => ({ ttlMs: mixedTtlMs(index), limit: index === 0 ? 1 : UNLIMITED }));
  const meter = metered(plain);
  const looks = meter.looks((record) => release(record, refTo(0), turnAt(1)));
  expect(meter.record.held).toHaveLength(CLAIMS - 1);
  expect(looks).toBeLessThan(CLAIMS * MOST_LOOKS);
});

test("record: the meter notices a walk through all claims", () => {
  const meter = metered(crowd(() => ({ limit: UNLIMITED })));
  expect(meter.looks((record) => record.held.some((claim) => claim.id === "none"))).toBeGreaterThan(CLAIMS);
  expect(
    meter.looks((record) => [...record.byId!.values()].filter((claim) => claim.weight > 1)),
  ).toBeGreaterThan(CLAIMS - 1);
});
