/** Random histories of a whole partition: batches of operations on several keys, by two clients. */
import fc from "fast-check";
import {
  momentArbitrary,
  type Operation,
  rawOperationArbitrary,
  resolveOperation,
  type Scene,
  say,
  sceneArbitrary,
} from "../../core/record-histories.ts";

/** Names that a script could trip over. */
export const KEYS = ["k", "key:{0}:lock:1", 'é"\\😀*'] as const;

/** Whose grants come back in the replies to each of the two clients. Everybody else's are published. */
export const OWNERS = [["a"], ["b", ""]] as const;

export interface KeyOperation {
  readonly key: string;
  readonly operation: Operation;
}

/** What happens at one moment: a batch of operations, or the server forgets its data or its scripts. */
export interface Round {
  /** How far the server's clock has moved since the round before, forwards or back. */
  readonly afterUs: number;
  readonly does: "batch" | "forget data" | "forget scripts";
  /** Which client sends the batch. */
  readonly client: 0 | 1;
  readonly operations: readonly KeyOperation[];
}

export interface History {
  /** From how many claims on a record is spread over sorted sets; undefined leaves the script's own number. */
  readonly few: number | undefined;
  /** What each client allows to wait for one key. */
  readonly maxWaiters: readonly [number, number];
  readonly rounds: readonly Round[];
}

const operationsArbitrary = (most: number) =>
  fc.array(fc.tuple(fc.constantFrom(0, 0, 0, 1, 2), rawOperationArbitrary), {
    minLength: 1,
    maxLength: most,
  });

const afterUsArbitrary = fc.oneof(
  {
    weight: 60,
    arbitrary: momentArbitrary.map(({ afterMs, stampBy }) => afterMs * 1_000 + stampBy),
  },
  { weight: 1, arbitrary: fc.constantFrom(-3_000_000, 4_000_000) },
);

const roundArbitrary = (operations: ReturnType<typeof operationsArbitrary>) =>
  fc.record({
    afterUs: afterUsArbitrary,
    does: fc.oneof(
      { weight: 100, arbitrary: fc.constant("batch" as const) },
      { weight: 1, arbitrary: fc.constantFrom("forget data" as const, "forget scripts" as const) },
    ),
    client: fc.constantFrom(0 as const, 1 as const),
    operations,
  });

const fewArbitrary = fc.constantFrom(undefined, undefined, 1, 3, 7);

type DrawnRound = ReturnType<typeof roundArbitrary> extends fc.Arbitrary<infer Value> ? Value : never;

interface Drawn extends Pick<History, "few" | "maxWaiters"> {
  readonly scenes: readonly Scene[];
  readonly rounds: readonly DrawnRound[];
}

/** Some claims on three keys, with all that can happen to them. */
const usualArbitrary = fc.record({
  few: fewArbitrary,
  maxWaiters: fc.tuple(fc.constantFrom(1_000, 30, 9, 2, 0), fc.constantFrom(1_000, 1_000, 9)),
  scenes: fc.array(sceneArbitrary, { minLength: KEYS.length, maxLength: KEYS.length }),
  rounds: fc.array(
    roundArbitrary(
      fc.oneof(
        { weight: 6, arbitrary: operationsArbitrary(1) },
        { weight: 4, arbitrary: operationsArbitrary(4) },
        { weight: 1, arbitrary: operationsArbitrary(40) },
      ),
    ),
    { maxLength: 90, size: "max" },
  ),
});

/** Hundreds of claims on one key. */
const crowdArbitrary = fc.record({
  few: fewArbitrary,
  maxWaiters: fc.tuple(fc.constant(1_000), fc.constantFrom(1_000, 100)),
  scenes: fc
    .record({
      palette: fc.nat(4),
      ids: fc.constant(500),
      maxWaiters: fc.constant(0),
      ttlMs: fc.constantFrom(400, 6_000),
    })
    .map((scene) => [scene]),
  rounds: fc.array(roundArbitrary(operationsArbitrary(60)), { minLength: 10, maxLength: 40, size: "max" }),
});

export const historyArbitrary: fc.Arbitrary<History> = fc
  .noBias(fc.oneof({ weight: 20, arbitrary: usualArbitrary }, { weight: 1, arbitrary: crowdArbitrary }))
  .map(resolveHistory);

function resolveHistory({ few, maxWaiters, scenes, rounds }: Drawn): History {
  const resolveRound = ({ afterUs, does, client, operations }: DrawnRound): Round => ({
    afterUs,
    does,
    client,
    operations: operations.map(([index, raw]) => {
      const scene = { ...scenes[index % scenes.length]!, maxWaiters: maxWaiters[client] };
      const key = KEYS[index % scenes.length]!;
      return { key, operation: resolveOperation(raw, scene, key) };
    }),
  });
  return { few, maxWaiters, rounds: rounds.map(resolveRound) };
}

export function sayOperation({ key, operation }: KeyOperation): string {
  const what =
    operation.does === "describe" ? `look at most at ${operation.maxClaims} claims` : say(operation);
  return `${key}: ${what}`;
}
