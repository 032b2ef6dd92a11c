/**
 * Several processes over one database, with requests that take any time, or are lost, as their replies are: every answer is the one
 * that the plain rules give when the operations are applied in the order in which their swaps were made. Whoever is told of an outage
 * asks again, not knowing whether the swap was made.
 */
import { strict as assert } from "node:assert";
import { inspect, isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { type AcquireAnswer, type RenewAnswer, type Store, StoreUnavailableError } from "holdfast";
import { type CasDriver, casStore, type SwapBatch } from "holdfast/cas";
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";
import { MapDatabase, mapDriver } from "../../../examples/driver/map-driver.ts";
import { type Operation, resolveOperation } from "../../record/histories.ts";
import { type Moment, RecordModel } from "../../record/model.ts";
import { type History, historyArbitrary } from "./burst-histories.ts";
import { distantDriver, type Journey, type Request } from "./distant-driver.ts";
import { type Fate, searchFor } from "./journeys.ts";

const RUNS = 600;
const PATIENCE_MS = 120_000;
const CROWDED_RUNS = 60;
const FLIGHT_MS = 1_000;
const KEYS = ["k", "l"];
/** Of which a burst takes enough for two flights, where the driver works in halves. */
const MANY_KEYS = Array.from({ length: 64 }, (_, nth) => `k${nth}`);
const PROCESSES = 3;
/** How often an operation is asked for again. */
const RETRIES = 3;

/** One confirmed look at a key: a swap, or a comparison that found it unchanged. */
interface Confirmed {
  readonly order: number;
  readonly moment: Moment;
  /** By how much the promise is shorter, because the server's time was later than the batch was decided for. */
  readonly lateMs: number;
}

interface Played {
  readonly process: number;
  readonly asked: number;
  readonly key: string;
  readonly operation: Exclude<Operation, { does: "describe" }>;
  /** Absent where there was an outage instead. */
  answer: { readonly given: unknown } | undefined;
  /** Absent where nothing came of it. */
  confirmed: Confirmed | undefined;
}

const seen = new Map<string, number>();

function count(what: string): void {
  seen.set(what, (seen.get(what) ?? 0) + 1);
}

class World {
  readonly clock = new ManualClock();
  readonly database = new MapDatabase(() => this.clock.wallMs());
  readonly stores: Store[];
  readonly played: Played[] = [];
  /** What came of the latest swap of each process and key. A key is in one flight at a time, so an answer belongs to it. */
  readonly #latest = new Map<string, Confirmed | undefined>();
  readonly #delays: readonly number[];
  readonly #fates: readonly Fate[];
  #delay = 0;
  #fate = 0;
  #order = 0;

  constructor({ scene, delays, fates }: History) {
    this.#delays = delays;
    this.#fates = fates;
    this.stores = Array.from({ length: PROCESSES }, (_, process) =>
      casStore(this.#driver(process), {
        clock: this.clock,
        random: () => this.#nextDelay() / 10,
        maxWaiters: scene.maxWaiters,
        requestTimeoutMs: FLIGHT_MS,
        keepIdleMs: 3_600_000,
        giveUpMs: 600_000,
        maxConcurrentRequests: 2,
        cachedKeys: process === 0 ? 1 : 100,
      }),
    );
  }

  #nextDelay(): number {
    return this.#delays[this.#delay++ % this.#delays.length] ?? 0;
  }

  #driver(process: number): CasDriver {
    const near = mapDriver(this.database);
    const noting: CasDriver = {
      ...near,
      swap: async (batch) => {
        const order = this.#order++;
        const reply = await near.swap(batch);
        for (const [index, { key }] of batch.changes.entries()) {
          const state = reply.results[index]?.state ?? "";
          count(state);
          const moment = momentOf(batch);
          const lateMs = Math.max(0, Math.ceil(reply.nowMs + 1 - moment.nowMs));
          const isMade = state === "swapped" || state === "same";
          this.#latest.set(`${process} ${key}`, isMade ? { order, moment, lateMs } : undefined);
        }
        return reply;
      },
    };
    const journey = (_: Request, batch: SwapBatch | undefined): Journey => {
      const keys = batch?.changes.map(({ key }) => key) ?? [];
      for (const key of keys) this.#latest.delete(`${process} ${key}`);
      const [thereMs, backMs] = [this.#nextDelay(), this.#nextDelay()];
      const fate = batch === undefined ? "pass" : this.#nextFate();
      if (fate === "pass") return { thereMs, backMs };
      count(fate);
      const error = new StoreUnavailableError(fate);
      return { thereMs: fate === "request lost" ? Number.POSITIVE_INFINITY : thereMs, backMs, error };
    };
    return distantDriver(noting, { clock: this.clock, journey });
  }

  #nextFate(): Fate {
    return this.#fates[this.#fate++] ?? "pass";
  }

  /** Asks, and after an outage asks for the same once more, as clients do. */
  async ask(process: number, key: string, operation: Played["operation"]): Promise<void> {
    for (let retry = 0; retry <= RETRIES; retry++) {
      if (await this.#askOnce(process, key, operation)) return;
      count("outage");
    }
  }

  /** Resolves to whether there was an answer. */
  #askOnce(process: number, key: string, operation: Played["operation"]): Promise<boolean> {
    const played: Played = {
      process,
      asked: this.played.length,
      key,
      operation,
      answer: undefined,
      confirmed: undefined,
    };
    this.played.push(played);
    // Nothing is awaited in between: the next swap of this key sets off right after it is known what became of this one.
    const conclude = () => {
      played.confirmed = this.#latest.get(`${process} ${key}`);
    };
    return this.#call(this.stores[process] as Store, operation).then(
      (given) => {
        played.answer = { given };
        conclude();
        return true;
      },
      (error: unknown) => {
        assert((error as { code?: unknown }).code === "STORE_UNAVAILABLE", inspect(error));
        conclude();
        return false;
      },
    );
  }

  async #call(store: Store, operation: Played["operation"]): Promise<unknown> {
    switch (operation.does) {
      case "acquire":
        return store.acquire(operation.request);
      case "renew":
        return (await store.renew([operation.ref]))[0];
      case "release":
        return (await store.release([operation.ref]))[0];
    }
  }

  async close(): Promise<void> {
    const closing = Promise.all(this.stores.map((store) => store.close()));
    await this.clock.advance(100);
    await closing;
  }
}

/** What the batch was decided by, as its window tells. */
function momentOf({ earliestMs, latestMs }: SwapBatch): Moment {
  const nowMs = latestMs - FLIGHT_MS;
  return { nowMs, expiredMs: earliestMs, stamp: BigInt(nowMs) * 1_000n };
}

async function play(history: History): Promise<void> {
  const { scene, keys, bursts } = history;
  const world = new World(history);
  const answers: Promise<void>[] = [];
  for (const { raws, process, key: first, afterMs } of bursts) {
    await world.clock.advance(afterMs);
    for (const [nth, raw] of raws.entries()) {
      const key = keys[(first + nth) % keys.length] as string;
      const operation = resolveOperation(raw, scene, key);
      if (operation.does !== "describe") answers.push(world.ask(process, key, operation));
    }
  }
  await world.clock.advance(30_000);
  await Promise.all(answers);
  for (const key of keys) judge(world.played.filter((played) => played.key === key));
  await world.close();
}

/** Applies the operations on one key to the model, in the order of their swaps, and compares the answers that were given. */
function judge(played: readonly Played[]): void {
  const model = new RecordModel();
  for (const { answer, confirmed } of played)
    assert(
      answer === undefined || confirmed !== undefined,
      "an answer was given without a look at the server",
    );
  const orderOf = ({ confirmed }: Played) => confirmed?.order ?? Number.NaN;
  const inOrder = played
    .filter(({ confirmed }) => confirmed !== undefined)
    .sort((a, b) => orderOf(a) - orderOf(b) || a.asked - b.asked);
  for (const [index, { operation, answer, confirmed }] of inOrder.entries()) {
    if (confirmed === undefined) continue;
    const expected = shortened(askModel(model, operation, confirmed.moment), confirmed.lateMs);
    if (answer === undefined) {
      count("made without an answer");
      continue;
    }
    const { given } = answer;
    const state = (given as { state?: string })?.state ?? String(given);
    count(`${operation.does} ${state}`);
    if (isDeepStrictEqual(given, expected)) continue;
    const story = inOrder.slice(0, index + 1).map((one) => inspect(one, { depth: 5, breakLength: 200 }));
    assert.fail(`${story.join("\n")}\nshould have been answered with ${inspect(expected)}`);
  }
}

function shortened(answer: AcquireAnswer | RenewAnswer | boolean, byMs: number): unknown {
  if (typeof answer === "boolean" || !("expiresInMs" in answer)) return answer;
  return { ...answer, expiresInMs: answer.expiresInMs - byMs };
}

function askModel(
  model: RecordModel,
  operation: Played["operation"],
  moment: Moment,
): AcquireAnswer | RenewAnswer | boolean {
  switch (operation.does) {
    case "acquire":
      return model.acquire(operation.request, operation.maxWaiters, moment);
    case "renew":
      return model.renew(operation.ref, moment);
    case "release":
      return model.release(operation.ref, moment);
  }
}

const answers = [
  ...["swapped", "same", "conflict"],
  ...["acquire held", "acquire waiting", "acquire refused", "renew held", "renew waiting", "renew gone"],
  ...["release true", "release false"],
  ...["request lost", "reply lost", "outage", "made without an answer"],
];

/** Plays histories, and sees that they meet what they are to be played for. */
async function playAll(
  histories: fc.Arbitrary<History>,
  numRuns: number,
  meets: readonly string[],
): Promise<void> {
  seen.clear();
  await fc.assert(fc.asyncProperty(histories, play), searchFor(numRuns, PATIENCE_MS));
  for (const what of meets) expect.soft(seen.get(what), what).toBeGreaterThan(numRuns / 8);
}

test("cas: every answer is what the plain rules say in the order of the swaps", {
  timeout: PATIENCE_MS,
}, async () => {
  const burst = { minLength: 1, maxLength: 2 };
  const histories = historyArbitrary({
    processes: PROCESSES,
    keys: KEYS,
    burst,
    maxBursts: 60,
  });
  await playAll(histories, RUNS, answers);
});

test("cas: so it is with many keys in one request", {
  timeout: PATIENCE_MS,
}, async () => {
  const burst = { minLength: 40, maxLength: 64 };
  const histories = historyArbitrary({
    processes: PROCESSES,
    keys: MANY_KEYS,
    burst,
    maxBursts: 24,
  });
  await playAll(histories, CROWDED_RUNS, answers);
});
