/** Random histories of a whole partition: batches of operations on several keys, by two clients. */
import fc from "fast-check";
import type { LockRecord } from "../../../src/record/record.ts";
import {
  momentArbitrary,
  ODD_TEXT,
  type Operation,
  rawOperationArbitrary,
  rawReferenceArbitrary,
  resolveOperation,
  type Scene,
  say,
  sceneArbitrary,
} from "../../record/histories.ts";
import { type KeyOperation, MachinePartition } from "./machine-partition.ts";

/** Names that a script could trip over. */
export const KEYS = ["k", "key:{0}:lock:1", `${ODD_TEXT}*`] as const;

/** Names of locks that are mostly asked for together. */
const MANY_KEYS = Array.from({ length: 10 }, (_, index) => `${"many".repeat(index % 3)}${index}`);

/** Whose grants come back in the replies to each of the two clients. Everybody else's are published. */
export const OWNERS = [["a"], ["b", ""]] as const;

/** When histories begin. Redis drops keys by its own clock, so it must be in the future for good. */
export const START_US = Date.UTC(2100, 0) * 1_000;

/** The parts of a lock in Redis: its field, and the keys of a lock that several claims share. */
export const PARTS = ["field", "claims", "held", "limits", "waiting", "queue"] as const;

/** What happens at one moment: a batch of operations, or the server loses its data, its scripts or one part of a lock. */
export interface Round {
  /** How far the server's clock has moved since the round before, forwards or back. */
  readonly afterUs: number;
  readonly does: "batch" | "forget data" | "forget scripts" | "lose a part";
  /** Which part is lost, of the lock that the first operation names. */
  readonly part: (typeof PARTS)[number];
  /** Which client sends the batch. */
  readonly client: 0 | 1;
  readonly operations: readonly KeyOperation[];
}

export interface History {
  /** What each client allows to wait for one key. */
  readonly maxWaiters: readonly [number, number];
  readonly rounds: readonly Round[];
}

/**
 * Whom a heartbeat or a release is about: an id at random, which is seldom there, or a claim that holds or waits when
 * its turn comes. Without the latter, hardly anything would ever be granted.
 */
const aimArbitrary = fc.constantFrom("held" as const, "held" as const, "queue" as const);

const drawnOperationArbitrary = (others: number) =>
  fc.oneof(
    { weight: others, arbitrary: fc.record({ raw: rawOperationArbitrary, aim: fc.constant(undefined) }) },
    { weight: 1, arbitrary: fc.record({ raw: rawReferenceArbitrary, aim: aimArbitrary }) },
  );

const operationsArbitrary = (most: number, others = 2) =>
  fc.array(fc.tuple(fc.constantFrom(0, 0, 0, 0, 0, 1, 2), drawnOperationArbitrary(others)), {
    minLength: 1,
    maxLength: most,
    size: "max",
  });

/** How far time moves on its own, or which claim's expiry it moves to, give or take a tick: where rules go wrong. */
const drawnTimeArbitrary = (calm: number) =>
  fc.oneof(
    {
      weight: calm,
      arbitrary: momentArbitrary.map(({ afterMs, stampBy }) => ({ us: afterMs * 1_000 + stampBy })),
    },
    { weight: 1, arbitrary: fc.constantFrom({ us: -3_000_000 }, { us: 4_000_000 }) },
    {
      weight: 6,
      arbitrary: fc.record({ claim: fc.nat(9_999), ticks: fc.constantFrom(0, 0, -1, 1) }),
    },
  );

/** `meetsOnly`: of the operations only those that acquire what nobody has, or renew and release what somebody has. */
const roundArbitrary = (
  operations: fc.Arbitrary<[number, DrawnOperation][]>,
  calm: number,
  meetsOnly: fc.Arbitrary<boolean> = fc.constant(false),
) =>
  fc.record({
    meetsOnly,
    time: drawnTimeArbitrary(calm),
    does: fc.oneof(
      { weight: 100, arbitrary: fc.constant("batch" as const) },
      { weight: 1, arbitrary: fc.constantFrom("forget data" as const, "forget scripts" as const) },
      { weight: 4, arbitrary: fc.constant("lose a part" as const) },
    ),
    part: fc.constantFrom("field" as const, ...PARTS),
    client: fc.constantFrom(0 as const, 1 as const),
    operations,
  });

type DrawnOperation =
  ReturnType<typeof drawnOperationArbitrary> extends fc.Arbitrary<infer Value> ? Value : never;
type DrawnRound = ReturnType<typeof roundArbitrary> extends fc.Arbitrary<infer Value> ? Value : never;

interface Drawn extends Pick<History, "maxWaiters"> {
  readonly keys: readonly string[];
  readonly scenes: readonly Scene[];
  readonly rounds: readonly DrawnRound[];
}

/** Fewer ids and longer lives, so that more of what is renewed and released is there. */
const usualSceneArbitrary = fc
  .tuple(sceneArbitrary, fc.constantFrom(3, 6, 12, 26), fc.constantFrom(5_000, 1_000, 100, 20))
  .map(([scene, ids, ttlMs]) => ({ ...scene, ids, ttlMs }));

/** Some claims on three keys, with all that can happen to them. */
const usualArbitrary = fc.record({
  keys: fc.constant(KEYS),
  maxWaiters: fc.tuple(fc.constantFrom(1_000, 30, 9, 2, 0), fc.constantFrom(1_000, 1_000, 9)),
  scenes: fc.array(usualSceneArbitrary, { minLength: KEYS.length, maxLength: KEYS.length }),
  rounds: fc.array(
    roundArbitrary(
      fc.oneof(
        { weight: 6, arbitrary: operationsArbitrary(1) },
        { weight: 4, arbitrary: operationsArbitrary(4) },
        { weight: 1, arbitrary: operationsArbitrary(30) },
      ),
      60,
    ),
    { maxLength: 90, size: "max" },
  ),
});

/** Hundreds of claims on one key, and time that lets them gather. */
const crowdArbitrary = fc.record({
  keys: fc.constant(KEYS),
  maxWaiters: fc.tuple(fc.constant(1_000), fc.constantFrom(1_000, 100)),
  scenes: fc
    .record({
      palette: fc.nat(4),
      ids: fc.constant(300),
      maxWaiters: fc.constant(0),
      ttlMs: fc.constantFrom(1_000, 20_000),
    })
    .map((scene) => [scene]),
  rounds: fc.array(roundArbitrary(operationsArbitrary(100, 10), 600), {
    minLength: 5,
    maxLength: 25,
    size: "max",
  }),
});

/** The same operation on several keys, of which one may be meant twice. */
const uniformOperationsArbitrary = fc
  .tuple(
    drawnOperationArbitrary(1),
    fc.oneof(
      {
        weight: 3,
        arbitrary: fc.shuffledSubarray(
          MANY_KEYS.map((_, index) => index),
          { minLength: 1 },
        ),
      },
      { weight: 1, arbitrary: fc.array(fc.nat(2), { minLength: 2, maxLength: 4, size: "max" }) },
    ),
    fc.array(fc.nat(9_999), { minLength: MANY_KEYS.length, maxLength: MANY_KEYS.length }),
    fc.constantFrom("held" as const, "held" as const, undefined),
  )
  .map(([{ raw }, indexes, numbers, aim]) =>
    indexes.map((index, place): [number, DrawnOperation] => {
      if (raw.does === "describe") return [index, { raw, aim: undefined }];
      // Whoever takes over is one of them, so that the others are as they were.
      const takeover = raw.who.takeover && place === indexes.length - 1;
      const who = { number: numbers[place]!, takeover };
      if (raw.does === "acquire") return [index, { raw: { ...raw, who, odd: false }, aim: undefined }];
      return [index, { raw: { ...raw, who }, aim }];
    }),
  );

/** Mutexes on ten keys, which are acquired, renewed and released together. Only two ids have the same priority. */
const uniformArbitrary = fc.record({
  keys: fc.constant(MANY_KEYS),
  maxWaiters: fc.constant([1_000, 1_000] as const),
  scenes: fc
    .record({
      palette: fc.constant(0),
      ids: fc.constant(2),
      maxWaiters: fc.constant(0),
      ttlMs: fc.constantFrom(5_000, 1_000, 100, 20),
    })
    .map((scene) => MANY_KEYS.map(() => scene)),
  rounds: fc.array(roundArbitrary(uniformOperationsArbitrary, 30, fc.boolean()), {
    maxLength: 60,
    size: "max",
  }),
});

export const historyArbitrary: fc.Arbitrary<History> = fc
  .noBias(
    fc.oneof(
      { weight: 12, arbitrary: usualArbitrary },
      { weight: 6, arbitrary: uniformArbitrary },
      { weight: 1, arbitrary: crowdArbitrary },
    ),
  )
  .map(resolveHistory);

function resolveHistory({ keys, maxWaiters, scenes, rounds }: Drawn): History {
  // The machine runs along, for what is aimed at its claims.
  const machine = new MachinePartition();
  let us = START_US;
  const resolveRound = ({ time, does, part, client, operations: drawn, meetsOnly }: DrawnRound): Round => {
    const afterUs = "us" in time ? time.us : usToExpiry(machine, time, us);
    us += afterUs;
    if (does === "forget data") machine.forget();
    const hadRecord = new Set(machine.records.keys());
    const isMet = ([index, { raw }]: [number, DrawnOperation]) =>
      hadRecord.has(keys[index % scenes.length]!) === (raw.does !== "acquire");
    const met = meetsOnly && drawn.some(isMet) ? drawn.filter(isMet) : drawn;
    const operations = does === "lose a part" ? met.slice(0, 1) : met;
    const resolved = operations.map(([index, drawn]): KeyOperation => {
      const scene = { ...scenes[index % scenes.length]!, maxWaiters: maxWaiters[client] };
      const key = keys[index % scenes.length]!;
      const operation = aimed(machine.records.get(key), drawn, resolveOperation(drawn.raw, scene, key));
      if (does === "batch") machine.apply([{ key, operation }], us, client);
      // Whether the lock had that part is known only when the history is played. This is for what is aimed at its claims.
      if (does === "lose a part") machine.forgetClaims(key, part !== "field");
      return { key, operation };
    });
    return { afterUs, does, part, client, operations: resolved };
  };
  return { maxWaiters, rounds: rounds.map(resolveRound) };
}

function usToExpiry(machine: MachinePartition, time: { claim: number; ticks: number }, us: number): number {
  const claims = [...machine.records.values()].flatMap(({ held, queue }) => [...held, ...queue]);
  const claim = claims[time.claim % claims.length];
  return claim === undefined ? 0 : (claim.expiresAtMs + time.ticks) * 1_000 - us;
}

function aimed(
  record: LockRecord | undefined,
  { raw, aim }: DrawnOperation,
  operation: Operation,
): Operation {
  if (aim === undefined || (operation.does !== "renew" && operation.does !== "release")) return operation;
  const claims = record?.[aim] ?? [];
  const claim = claims[raw.who.number % claims.length];
  if (claim === undefined) return operation;
  const ref = { ...operation.ref, id: claim.id };
  // A claim that nobody owns any more has no token to ask with.
  if (ref.token === undefined || raw.who.takeover || claim.token === "") return { ...operation, ref };
  return { ...operation, ref: { ...ref, token: claim.token } };
}

export function sayOperation({ key, operation }: KeyOperation): string {
  const what =
    operation.does === "describe" ? `look at most at ${operation.maxClaims} claims` : say(operation);
  return `${key}: ${what}`;
}
