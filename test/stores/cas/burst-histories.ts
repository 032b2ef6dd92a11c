/** Histories of several processes over one database, and of what becomes of their requests. */
import fc from "fast-check";
import {
  type RawOperation,
  rawOperationArbitrary,
  type Scene,
  sceneArbitrary,
} from "../../record/histories.ts";
import { afterMsArbitrary, delaysArbitrary, type Fate, fatesArbitrary } from "./journeys.ts";

/** Some operations that a process asks for in one breath, on a key each; and when. */
export interface Burst {
  readonly raws: readonly RawOperation[];
  readonly process: number;
  /** The key of the first; the others follow. */
  readonly key: number;
  readonly afterMs: number;
}

export interface History {
  readonly scene: Scene;
  readonly keys: readonly string[];
  readonly bursts: readonly Burst[];
  readonly delays: readonly number[];
  readonly fates: readonly Fate[];
}

export function historyArbitrary(terms: {
  readonly processes: number;
  readonly keys: readonly string[];
  readonly burst: { readonly minLength: number; readonly maxLength: number };
  readonly maxBursts: number;
}): fc.Arbitrary<History> {
  const { processes, keys, burst, maxBursts } = terms;
  const burstArbitrary = fc.record({
    raws: fc.array(rawOperationArbitrary, burst),
    process: fc.nat(processes - 1),
    key: fc.nat(keys.length - 1),
    afterMs: afterMsArbitrary,
  });
  // Small values are not favoured here: crowds need many steps.
  return fc.noBias(
    fc.record({
      scene: sceneArbitrary,
      keys: fc.constant(keys),
      bursts: fc.array(burstArbitrary, { maxLength: maxBursts, size: "max" }),
      delays: delaysArbitrary,
      fates: fatesArbitrary,
    }),
  );
}
