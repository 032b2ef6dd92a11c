/** The claim's machine: steps as values, random histories, and every short history. */
import fc from "fast-check";
import { HoldfastError } from "holdfast";
import { describe, expect, test } from "vitest";
import type { Asking, Held, Live } from "../../src/client/claim.ts";
import * as answers from "../../src/client/claim-answers.ts";
import * as events from "../../src/client/claim-events.ts";
import { ClaimWorld, Recorder, type RecorderOptions, type Step, TTL_MS } from "./claim-world.ts";

const held = { state: "held", fence: 5n, acquiredAtMs: 0, expiresInMs: TTL_MS } as const;
const waiting = { state: "waiting", fence: 3n, expiresInMs: TTL_MS, retryInMs: 100 } as const;

function asking(options?: RecorderOptions): Recorder {
  const claim = new Recorder(options);
  events.asked(claim.live<Live<Asking>>(), 1_000, 100);
  return claim;
}

function holding(options?: RecorderOptions): Recorder {
  const claim = asking(options);
  answers.acquireAnswered(claim.live(), claim.request, 100, 105, held);
  claim.take();
  return claim;
}

describe("one step", () => {
  test("asking sends an acquire, and again if no answer comes", () => {
    const claim = asking();
    expect(claim.take()).toEqual([["send acquire"]]);
    expect(claim.attemptMs).toBe(105);
    expect(events.fellDue(claim.live(), undefined, 105)).toBe(false);
    expect(claim.take()).toEqual([["send acquire"]]);
  });

  test("a grant proves the lease from the time of its request", () => {
    const claim = asking();
    claim.take();
    answers.acquireAnswered(claim.live(), claim.request, 100, 105, held);
    expect(claim.take()).toEqual([["moved", "asking", "held"], ["changed"], ["granted", false]]);
    expect(claim).toMatchObject({ phase: "held", fence: 5n, provenUntilMs: 129, attemptMs: 110 });
  });

  test("a waiting answer queues the claim, and a push of a higher fence grants it", () => {
    const claim = asking();
    claim.take();
    answers.acquireAnswered(claim.live(), claim.request, 100, 105, waiting);
    expect(claim.take()).toEqual([["moved", "asking", "waiting"], ["waits"]]);
    expect(answers.pushed(claim.live(), 3n, 108)).toBe(false);
    expect(answers.pushed(claim.live(), 4n, 108)).toBe(true);
    expect(claim.take()).toEqual([["moved", "waiting", "held"], ["changed"], ["granted", false]]);
  });

  test("a lease that no answer proves in time is lost and released", () => {
    const claim = holding();
    expect(events.looked(claim.live(), undefined, 129)).toBe(false);
    expect(claim.take()).toEqual([
      ["discard", claim.request],
      ["lost", "expired", true, true],
      ["moved", "held", "ended"],
      ["changed"],
    ]);
  });

  test("with reacquire a lost lease is asked for under another id", () => {
    const claim = holding({ settings: { reacquire: true } });
    const before = claim.request;
    events.looked(claim.live(), undefined, 129);
    expect(claim.take()).toEqual([
      ["discard", before],
      ["lost", "expired", true, false],
      ["moved", "held", "asking"],
      ["send acquire"],
      ["changed"],
      ["asks again"],
    ]);
    expect(claim.request).toMatchObject({ id: "a1", token: "token of a1", wait: true });
  });

  test.each([
    ["a lower", 4n],
    ["a higher", 6n],
  ])("a renewal with %s fence is not the lease", (_, fence) => {
    const claim = holding();
    answers.renewalAnswered(claim.live(), claim.request, 110, 112, { ...held, fence });
    expect(claim.take().slice(0, 2)).toEqual([
      ["discard", claim.request],
      ["lost", "gone", true, true],
    ]);
  });

  test("a repeated acquire that fails after the grant says nothing of the lease", () => {
    const claim = holding();
    const { attemptMs } = claim;
    const error = new HoldfastError("STORE_FAILURE", "failed");
    answers.acquireFailed(claim.live(), claim.request, error, 106);
    expect(claim.take()).toEqual([["request failed", "STORE_FAILURE"]]);
    expect(claim).toMatchObject({ phase: "held", attemptMs, lastError: undefined });
  });

  test("the thread's proof counts before its loss and the clock", () => {
    const claim = holding();
    expect(events.looked(claim.live(), { provenUntilMs: 150.5, loss: undefined }, 140)).toBe(true);
    expect(claim.provenUntilMs).toBe(150);
    expect(events.looked(claim.live(), { provenUntilMs: 160, loss: "taken-over" }, 141)).toBe(false);
    expect(claim.loss?.reason).toBe("taken-over");
  });

  test("a closing client releases a lease, and its extensions fail", () => {
    const claim = holding();
    events.extendAsked(claim.live<Live<Held>>(), 60, 1, 106);
    events.closed(claim.live(), 107);
    expect(claim.take()).toEqual([
      ["send renewal"],
      ["lost", "closed", true, true],
      ["extended", 1, "closed"],
      ["moved", "held", "leaving"],
      ["send release"],
      ["changed"],
    ]);
  });

  test("what is granted after the end is released, unless the claim was left", () => {
    const claim = asking();
    events.cancelled(claim.live(), "signal", undefined, 101);
    claim.take();
    answers.acquireAnswered(claim.live(), claim.request, 100, 105, held);
    expect(claim.take()).toEqual([["discard", claim.request]]);
    const left = asking();
    events.detached(left.live());
    left.take();
    answers.acquireAnswered(left.live(), left.request, 100, 105, held);
    expect(left.take()).toEqual([]);
  });
});

/** Mutation testing repeats these tests for every mutant, so it asks for few runs, always the same, and short walks. */
const RUNS = Number(process.env["CLAIM_RUNS"] ?? 3_000);
const SEED = process.env["CLAIM_SEED"];
const DEPTH = Number(process.env["CLAIM_DEPTH"] ?? 6);

const variants: readonly (readonly [options: RecorderOptions, waitMs: number])[] = [
  [{}, Number.POSITIVE_INFINITY],
  [{ settings: { reacquire: true } }, 70],
  [{ settings: { reacquire: true, maxHoldMs: 100 }, namedByCaller: true }, 200],
  [{ settings: { renew: false } }, Number.POSITIVE_INFINITY],
  [{ request: { wait: false } }, 0],
];

/** The lock is free, or taken, or granted and then lost to a rival. */
const beginnings: readonly (readonly Step[])[] = [
  [],
  [{ do: "rival" }],
  [
    ...([{ do: "arrive", nth: 0 }, { do: "answer", nth: 0 }, { do: "rival" }, { do: "force" }] as const),
    ...([
      { do: "pass", ms: 15 },
      { do: "arrive", nth: 0 },
      { do: "answer", nth: 0 },
    ] as const),
  ],
];

const nth = fc.integer({ min: 0, max: 2 });
const stepArbitrary: fc.Arbitrary<Step> = fc.oneof(
  { weight: 10, arbitrary: fc.record({ do: fc.constant("arrive" as const), nth }) },
  { weight: 10, arbitrary: fc.record({ do: fc.constant("answer" as const), nth }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant("pass" as const), ms: fc.constantFrom(1, 4, 9, 15, 40) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom(
        "repeat" as const,
        "drop" as const,
        "fail" as const,
        "refuse" as const,
        "forget" as const,
        "push" as const,
      ),
      nth,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom("rival" as const, "force" as const, "push" as const),
      nth: fc.constant(0),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constantFrom(
        ...([
          "release",
          "cancel",
          "detach",
          "extend",
          "extend",
          "pause",
          "resume",
          "close",
          "abandon",
        ] as const),
      ),
    }),
  },
);

test("random histories keep the invariants of a claim", () => {
  const phases = new Map<string, number>();
  fc.assert(
    fc.property(
      fc.constantFrom(...variants),
      fc.constantFrom(...beginnings),
      fc.array(stepArbitrary, { minLength: 5, maxLength: 80 }),
      ([options, waitMs], beginning, steps) => {
        const world = new ClaimWorld(options, waitMs);
        for (const step of [...beginning, ...steps]) {
          world.play(step);
          const { phase, fence } = world.claim;
          const met = `${phase}${fence === 0n ? "" : " after a grant"}`;
          phases.set(met, (phases.get(met) ?? 0) + 1);
        }
      },
    ),
    { numRuns: RUNS, ...(SEED === undefined ? {} : { seed: Number(SEED) }) },
  );
  for (const met of [
    ...["asking", "waiting", "leaving", "ended", "held after a grant", "asking after a grant"],
    ...["waiting after a grant", "leaving after a grant", "ended after a grant"],
  ]) {
    expect(phases.get(met) ?? 0, met).toBeGreaterThan(RUNS / 100);
  }
});

const alphabet: readonly Step[] = [
  { do: "arrive", nth: 0 },
  { do: "arrive", nth: 1 },
  { do: "repeat", nth: 0 },
  { do: "answer", nth: 0 },
  { do: "answer", nth: 1 },
  { do: "fail", nth: 0 },
  { do: "pass", ms: 10 },
  { do: "rival" },
  { do: "force" },
  { do: "push", nth: 0 },
  { do: "release" },
];

/** Every history of up to `depth` steps on a grid of 10 ms. A state that was reached before is not walked from again. */
function walk(depth: number, options: RecorderOptions): number {
  const seen = new Set<string>();
  let paths: (readonly Step[])[] = [[]];
  for (let steps = 0; steps < depth; steps++) {
    const next: (readonly Step[])[] = [];
    for (const path of paths) {
      for (const step of alphabet) {
        const world = new ClaimWorld(options);
        for (const earlier of path) world.play(earlier);
        if (!world.play(step)) continue;
        const state = world.describe();
        if (seen.has(state)) continue;
        seen.add(state);
        next.push([...path, step]);
      }
    }
    paths = next;
  }
  return seen.size;
}

test(`every history of ${DEPTH} steps keeps the invariants of a claim`, () => {
  const once = walk(DEPTH, {});
  const again = walk(DEPTH - 1, { settings: { reacquire: true } });
  console.log(`${once} states of a claim, ${again} of one that is won again`);
  expect(once).toBeGreaterThan(DEPTH < 6 ? 100 : 5_000);
});
