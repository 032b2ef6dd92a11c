import { strict as assert } from "node:assert";
import { inspect, isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  acquire,
  describe,
  emptyRecord,
  isIdle,
  type RecordClaim,
  release,
  renew,
  settle,
} from "../../src/core/record.ts";
import { decodeRecord, encodeRecord } from "../../src/core/record-format.ts";
import { type ClaimRef, type ClaimRequest, type RenewRef, UNLIMITED } from "../../src/core/store.ts";
import { assertInvariants } from "./record-invariants.ts";
import { type ModelClaim, RecordModel } from "./record-model.ts";

const KEY = "k";

/** Mutation testing repeats this suite for every mutant, so it asks for fewer runs and for no shrinking. */
const RUNS = Number(process.env["RECORD_MODEL_RUNS"] ?? 2_000);
const QUICK = process.env["RECORD_MODEL_RUNS"] !== undefined;

interface Shape {
  readonly weight: number;
  readonly limit: number;
}

const exclusive: Shape = { weight: 1, limit: 1 };
const shared: Shape = { weight: 1, limit: UNLIMITED };
const permits = (weight: number, limit: number): Shape => ({ weight, limit });

/** The claims that one run is made of: mutexes, readers and writers, a semaphore, and mixes that nobody would plan. */
const palettes: readonly (readonly Shape[])[] = [
  [exclusive],
  [shared, shared, exclusive],
  [permits(1, 4), permits(2, 4), permits(4, 4)],
  [permits(1, 12), shared],
  [exclusive, shared, permits(2, 3), permits(1, 9), permits(3, UNLIMITED), permits(2, 5)],
];

const priorities = [0, 0, 3, 0, 1, 0, 65_535];

type Step =
  | { readonly does: "acquire"; readonly request: ClaimRequest; readonly maxWaiters: number }
  | { readonly does: "renew"; readonly ref: RenewRef }
  | { readonly does: "release"; readonly ref: ClaimRef }
  | { readonly does: "describe"; readonly aheadMs: number; readonly maxClaims: number }
  | { readonly does: "settle" }
  | { readonly does: "reload" };

/** A step, and how far the store's time and stamp have moved when it comes. */
interface TimedStep {
  readonly afterMs: number;
  readonly stampBy: number;
  readonly step: Step;
}

/** What all steps of one run have in common, so that their claims meet. */
interface Scene {
  readonly palette: number;
  readonly ids: number;
  readonly maxWaiters: number;
  /** Long-lived claims pile up; short-lived ones expire in the middle of things. */
  readonly ttlMs: number;
}

const sceneArbitrary: fc.Arbitrary<Scene> = fc.record({
  palette: fc.nat(palettes.length - 1),
  ids: fc.constantFrom(26, 26, 14, 4),
  maxWaiters: fc.constantFrom(30, 30, 9, 2, 0),
  ttlMs: fc.constantFrom(400, 100, 10),
});

/** Who asks. The same number is the same id with the same shape, unless it is `odd`, which reuses the id wrongly. */
const whoArbitrary = fc.record({
  number: fc.nat(25),
  // A token equal to the id is what the format leaves out, so both kinds are needed.
  takeover: fc.nat(3).map((roll) => roll === 3),
});

const rawStepArbitrary = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      does: fc.constant("acquire" as const),
      who: whoArbitrary,
      odd: fc.nat(19).map((roll) => roll === 7),
      ttlFactor: fc.constantFrom(1, 1, 2, 0.5),
      wait: fc.nat(5).map((roll) => roll !== 5),
      label: fc.constantFrom("", "", "x", 'é"\n'),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      does: fc.constantFrom("renew" as const, "release" as const),
      who: whoArbitrary,
      asAdministrator: fc.nat(4).map((roll) => roll === 4),
      ttlFactor: fc.constantFrom(undefined, undefined, 0.5, 3),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      does: fc.constant("describe" as const),
      aheadMs: fc.nat(60),
      maxClaims: fc.nat(6),
    }),
  },
  { weight: 2, arbitrary: fc.record({ does: fc.constantFrom("settle" as const, "reload" as const) }) },
);

const momentArbitrary = fc.record({
  afterMs: fc.oneof(
    { weight: 40, arbitrary: fc.constantFrom(0, 0, 1) },
    { weight: 15, arbitrary: fc.nat(8) },
    { weight: 1, arbitrary: fc.nat(1_200) },
    // A store's clock that is set back must do no harm either.
    { weight: 3, arbitrary: fc.integer({ min: -5, max: -1 }) },
  ),
  stampBy: fc.constantFrom(0, 0, 1, 2, 40, -30),
});

// Small values are not favoured here: crowds need many different ids and many steps.
const runArbitrary = fc
  .noBias(
    fc.tuple(
      sceneArbitrary,
      fc.array(fc.tuple(momentArbitrary, rawStepArbitrary), { maxLength: 140, size: "max" }),
    ),
  )
  .map(([scene, steps]) =>
    steps.map(([moment, raw]): TimedStep => ({ ...moment, step: resolveStep(raw, scene) })),
  );

type RawStep = typeof rawStepArbitrary extends fc.Arbitrary<infer Raw> ? Raw : never;

function resolveStep(raw: RawStep, scene: Scene): Step {
  switch (raw.does) {
    case "settle":
    case "reload":
      return { does: raw.does };
    case "describe":
      return raw;
    case "acquire": {
      const { number, id, token } = resolveWho(raw.who, scene);
      const palette = palettes[scene.palette]!;
      const { weight, limit } = palette[(number + (raw.odd ? 1 : 0)) % palette.length]!;
      const priority = priorities[(number + (raw.odd ? 1 : 0)) % priorities.length]!;
      const ttlMs = scene.ttlMs * raw.ttlFactor;
      const label = { owner: raw.label, info: raw.label, application: raw.label };
      const request = { key: KEY, id, token, weight, limit, priority, ttlMs, wait: raw.wait, ...label };
      return { does: "acquire", request, maxWaiters: scene.maxWaiters };
    }
    case "renew":
    case "release": {
      const { id, token } = resolveWho(raw.who, scene);
      const ref = raw.asAdministrator ? { key: KEY, id } : { key: KEY, id, token };
      if (raw.does === "release") return { does: "release", ref };
      const asked = raw.ttlFactor === undefined ? {} : { ttlMs: scene.ttlMs * raw.ttlFactor };
      return { does: "renew", ref: { ...ref, ...asked } };
    }
  }
}

function resolveWho(who: { number: number; takeover: boolean }, scene: Scene) {
  const number = who.number % scene.ids;
  const id = String.fromCharCode("a".charCodeAt(0) + number);
  return { number, id, token: who.takeover ? `${id}2` : id };
}

/** How often each thing happened over all runs, so that the property cannot pass by never meeting a case. */
const seen = new Map<string, number>();

const cases = [
  "acquire held",
  "acquire waiting",
  "acquire contended",
  "acquire queue-full",
  "acquire id-reused",
  "acquire repeated",
  "acquire taken over",
  "renew held",
  "renew waiting",
  "renew gone",
  "release true",
  "release false",
  "several grants at once",
];

function count(what: string): void {
  seen.set(what, (seen.get(what) ?? 0) + 1);
}

/** The machine and the model side by side. */
class Comparison {
  #record = emptyRecord();
  readonly #model = new RecordModel();
  #nowMs = 1_000;
  #stamp = 0n;
  readonly #trace: string[] = [];

  run(steps: readonly TimedStep[]): void {
    for (const timed of steps) {
      this.#nowMs += timed.afterMs;
      const stamp = this.#stamp + BigInt(timed.stampBy);
      this.#stamp = stamp < 0n ? 0n : stamp;
      this.#trace.push(`${this.#nowMs} ms, stamp ${this.#stamp}: ${say(timed.step)}`);
      try {
        this.#apply(timed.step);
      } catch (error) {
        const steps = this.#trace.map((line, index) => `${String(index + 1).padStart(4)}. ${line}`);
        const reason = error instanceof Error ? error.message : String(error);
        throw new Error(`after these steps\n${steps.join("\n")}\n${reason}`, { cause: error });
      }
    }
  }

  #apply(step: Step): void {
    const fenceBefore = this.#record.fence;
    const grantedBefore = this.#model.granted.length;
    const heldBefore = new Map(this.#model.held.map((claim) => [claim.request.id, claim.grant]));
    const granted: RecordClaim[] = [];

    const expected = this.#ask(step, true, granted);
    const actual = this.#ask(step, false, granted);
    this.#trace.push(`${this.#trace.pop()} → ${inline(expected)}`);

    equal("the answer", actual, expected);
    const newlyGranted = this.#model.granted.slice(grantedBefore);
    equal("the granted claims", granted.map(machineGrant), newlyGranted.map(modelGrant));
    const status = describe(this.#record, KEY, this.#nowMs, 1_000);
    equal("the description", status, this.#model.describe(KEY, this.#nowMs, 1_000));
    equal("isIdle", isIdle(this.#record), this.#model.claims.length === 0);
    assertInvariants(this.#record);
    for (const { id, fence } of granted) assert(fence > fenceBefore, `the fence of ${id} did not grow`);
    assert(this.#record.fence >= fenceBefore, "the record's fence went back");
    this.#countCases(step, expected, heldBefore, granted);
  }

  /** Asks the model or the machine. */
  #ask(step: Step, model: boolean, granted: RecordClaim[]): unknown {
    const turn = { nowMs: this.#nowMs, stamp: this.#stamp, granted };
    switch (step.does) {
      case "acquire":
        return model
          ? this.#model.acquire(step.request, step.maxWaiters, turn)
          : acquire(this.#record, step.request, step.maxWaiters, turn);
      case "renew":
        return model ? this.#model.renew(step.ref, turn) : renew(this.#record, step.ref, turn);
      case "release":
        return model ? this.#model.release(step.ref, turn) : release(this.#record, step.ref, turn);
      case "describe": {
        const nowMs = this.#nowMs + step.aheadMs;
        return model
          ? this.#model.describe(KEY, nowMs, step.maxClaims)
          : describe(this.#record, KEY, nowMs, step.maxClaims);
      }
      case "settle":
        return model ? this.#model.settle(turn) : settle(this.#record, turn);
      case "reload":
        if (!model) this.#reload();
        return undefined;
    }
  }

  #reload(): void {
    const text = encodeRecord(this.#record);
    this.#record = decodeRecord(text, KEY);
    equal("the text of a record that was read back", encodeRecord(this.#record), text);
  }

  #countCases(
    step: Step,
    answer: unknown,
    heldBefore: ReadonlyMap<string, ModelClaim["grant"]>,
    granted: readonly RecordClaim[],
  ): void {
    count("steps");
    if (this.#record.byId !== undefined) count("steps with an index");
    if (this.#record.byId === undefined && !isIdle(this.#record)) count("steps without an index");
    if (granted.length > 1) count("several grants at once");
    const { state, reason } = Object(answer) as { state?: string; reason?: string };
    count(`${step.does} ${reason ?? state ?? String(answer)}`);
    if (step.does !== "acquire") return;
    const { id } = step.request;
    const before = heldBefore.get(id);
    const after = this.#model.held.find((claim) => claim.request.id === id)?.grant;
    if (before !== undefined && after !== undefined && granted.every((claim) => claim.id !== id)) {
      count(before.fence === after.fence ? "acquire repeated" : "acquire taken over");
    }
  }
}

function equal(what: string, actual: unknown, expected: unknown): void {
  if (isDeepStrictEqual(actual, expected)) return;
  throw new Error(`${what} should be\n  ${inline(expected)}\nand is\n  ${inline(actual)}`);
}

/** A claim as it is when the operation is over, which is when a store reads the list. */
function machineGrant({ id, token, owner, fence, acquiredAtMs, expiresAtMs }: RecordClaim) {
  return { id, token, owner, fence, acquiredAtMs, expiresAtMs };
}

function modelGrant({ request: { id, token, owner }, grant, expiresAtMs }: ModelClaim) {
  return { id, token, owner, ...grant, expiresAtMs };
}

function inline(value: unknown): string {
  return inspect(value, { depth: 5, breakLength: Number.POSITIVE_INFINITY });
}

function say(step: Step): string {
  switch (step.does) {
    case "acquire": {
      const { id, token, weight, limit, priority, ttlMs, wait } = step.request;
      const shape = `weight ${weight} limit ${limit === UNLIMITED ? "∞" : limit} priority ${priority}`;
      const manner = wait ? `wait (at most ${step.maxWaiters} waiters)` : "try";
      return `acquire ${id} as ${token}, ${shape}, ttl ${ttlMs}, ${manner}`;
    }
    case "renew":
      return `renew ${step.ref.id} as ${step.ref.token ?? "administrator"}, ttl ${step.ref.ttlMs ?? "its own"}`;
    case "release":
      return `release ${step.ref.id} as ${step.ref.token ?? "administrator"}`;
    case "describe":
      return `describe at most ${step.maxClaims} claims, ${step.aheadMs} ms ahead`;
    case "settle":
      return "settle";
    case "reload":
      return "encode and decode";
  }
}

test("record: every sequence of operations answers as the plain rules do", { timeout: 120_000 }, () => {
  const property = fc.property(runArbitrary, (steps) => new Comparison().run(steps));
  const result = fc.check(
    property,
    QUICK ? { numRuns: RUNS, seed: 1, endOnFailure: true } : { numRuns: RUNS },
  );
  if (result.failed) {
    const reason = result.errorInstance instanceof Error ? result.errorInstance.message : "";
    throw new Error(`With seed ${result.seed} and path "${result.counterexamplePath}", ${reason}`);
  }
  for (const name of cases) expect.soft(seen.get(name), name).toBeGreaterThan(RUNS / 100);
  const steps = seen.get("steps") ?? 0;
  expect.soft(seen.get("steps with an index")).toBeGreaterThan(steps / 8);
  expect.soft(seen.get("steps without an index")).toBeGreaterThan(steps / 8);
});
