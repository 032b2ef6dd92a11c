import { strict as assert } from "node:assert";
import { inspect, isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeRecord, encodeRecord } from "../../src/record/format.ts";
import {
  acquire,
  emptyRecord,
  isIdle,
  type LockRecord,
  type RecordClaim,
  release,
  renew,
  settle,
  type Turn,
} from "../../src/record/record.ts";
import { restoreRecord, soleClaim } from "../../src/record/sole-claim.ts";
import { describe } from "../../src/record/view.ts";
import { HISTORY_KEY, historyArbitrary, type Step, say, type TimedStep } from "./histories.ts";
import { assertInvariants } from "./invariants.ts";
import { type ModelClaim, type Moment, RecordModel } from "./model.ts";

/** Mutation testing repeats this suite for every mutant, so it asks for few runs, always the same, and no shrinking. */
const RUNS = Number(process.env["RECORD_MODEL_RUNS"] ?? 400);
const SEED = process.env["RECORD_MODEL_SEED"];
const SHRINK = process.env["RECORD_MODEL_SHRINK"] !== "false";

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

interface Played extends Moment {
  readonly step: Step;
  /** As the model answered. */
  answer?: unknown;
}

/** The machine and the model side by side. */
class Comparison {
  #record = emptyRecord();
  readonly #model = new RecordModel();
  readonly #played: Played[] = [];

  play(history: readonly TimedStep[]): void {
    let nowMs = 1_000;
    let stamp = 0n;
    for (const { afterMs, unsureMs, stampBy, step } of history) {
      nowMs += afterMs;
      stamp += BigInt(stampBy);
      if (stamp < 0n) stamp = 0n;
      const played: Played = { nowMs, expiredMs: nowMs - unsureMs, stamp, step };
      this.#played.push(played);
      try {
        this.#playStep(played);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        throw new Error(`after these steps\n${this.#story()}\n${reason}`, { cause: error });
      }
    }
  }

  #playStep(played: Played): void {
    const { step, nowMs, expiredMs, stamp } = played;
    const fenceBefore = this.#record.fence;
    const grantedBefore = this.#model.granted.length;
    const heldBefore = new Map(this.#model.held.map((claim) => [claim.request.id, claim.grant]));
    const granted: RecordClaim[] = [];

    played.answer = askModel(this.#model, step, played);
    if (step.does === "reload") this.#reload();
    const answer = askMachine(this.#record, step, { nowMs, expiredMs, stamp, granted });

    equal("the answer", answer, played.answer);
    const newlyGranted = this.#model.granted.slice(grantedBefore);
    equal("the granted claims", granted.map(machineGrant), newlyGranted.map(modelGrant));
    const status = describe(this.#record, HISTORY_KEY, nowMs, 1_000);
    equal("the description", status, this.#model.describe(HISTORY_KEY, nowMs, 1_000));
    equal("isIdle", isIdle(this.#record), this.#model.claims.length === 0);
    assertInvariants(this.#record);
    for (const { id, fence } of granted) assert(fence > fenceBefore, `the fence of ${id} did not grow`);
    assert(this.#record.fence >= fenceBefore, "the record's fence went back");
    this.#countCases(played, heldBefore, granted);
  }

  #reload(): void {
    const text = encodeRecord(this.#record);
    this.#record = decodeRecord(text, HISTORY_KEY);
    equal("the text of a record that was read back", encodeRecord(this.#record), text);
    const sole = soleClaim(this.#record);
    if (sole === undefined) return;
    this.#record = emptyRecord();
    restoreRecord(this.#record, sole);
    equal("the text of a record that was kept as its sole claim", encodeRecord(this.#record), text);
  }

  #story(): string {
    const lines = this.#played.map(({ nowMs, stamp, step, answer }, index) => {
      const number = String(index + 1).padStart(4);
      return `${number}. ${nowMs} ms, stamp ${stamp}: ${say(step)} → ${inline(answer)}`;
    });
    return lines.join("\n");
  }

  #countCases(
    { step, answer }: Played,
    heldBefore: ReadonlyMap<string, ModelClaim["grant"]>,
    granted: readonly RecordClaim[],
  ): void {
    count("steps");
    if (this.#record.byId !== undefined) count("steps with an index");
    else if (!isIdle(this.#record)) count("steps without an index");
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

function askModel(model: RecordModel, step: Step, moment: Moment): unknown {
  switch (step.does) {
    case "acquire":
      return model.acquire(step.request, step.maxWaiters, moment);
    case "renew":
      return model.renew(step.ref, moment);
    case "release":
      return model.release(step.ref, moment);
    case "describe":
      return model.describe(HISTORY_KEY, moment.nowMs + step.aheadMs, step.maxClaims);
    case "settle":
      return model.settle(moment);
    case "reload":
      return undefined;
  }
}

function askMachine(record: LockRecord, step: Step, turn: Turn): unknown {
  switch (step.does) {
    case "acquire":
      return acquire(record, step.request, step.maxWaiters, turn);
    case "renew":
      return renew(record, step.ref, turn);
    case "release":
      return release(record, step.ref, turn);
    case "describe":
      return describe(record, HISTORY_KEY, turn.nowMs + step.aheadMs, step.maxClaims);
    case "settle":
      return settle(record, turn);
    case "reload":
      return undefined;
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

test("record: every sequence of operations answers as the plain rules do", { timeout: 120_000 }, () => {
  const property = fc.property(historyArbitrary, (history) => new Comparison().play(history));
  const seed = SEED === undefined ? {} : { seed: Number(SEED) };
  const result = fc.check(property, { numRuns: RUNS, endOnFailure: !SHRINK, ...seed });
  if (result.failed) {
    const reason = result.errorInstance instanceof Error ? result.errorInstance.message : "";
    throw new Error(`(RECORD_MODEL_SEED=${result.seed} repeats this) ${reason}`);
  }
  for (const name of cases) expect.soft(seen.get(name), name).toBeGreaterThan(RUNS / 100);
  const steps = seen.get("steps") ?? 0;
  expect.soft(seen.get("steps with an index")).toBeGreaterThan(steps / 8);
  expect.soft(seen.get("steps without an index")).toBeGreaterThan(steps / 8);
});
