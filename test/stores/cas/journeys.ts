/** What requests meet on their way, in properties over several processes. */
import fc from "fast-check";

export type Fate = "pass" | "request lost" | "reply lost";

/** Time that passes before a step. Mostly none, so that operations meet. */
export const afterMsArbitrary = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(0, 0, 0, 1, 2) },
  { weight: 1, arbitrary: fc.nat(120) },
);

/** How long requests and replies take, again and again. */
export const delaysArbitrary = fc.array(fc.nat(9), { minLength: 5, maxLength: 30 });

/** What becomes of the first swaps. Those after them get through. */
export const fatesArbitrary: fc.Arbitrary<Fate[]> = fc.array(
  fc.oneof(
    { weight: 8, arbitrary: fc.constant("pass" as const) },
    { weight: 1, arbitrary: fc.constantFrom("request lost" as const, "reply lost" as const) },
  ),
  { maxLength: 80, size: "max" },
);

/**
 * How histories are looked through, by a test that has `patienceMs` for it. One that never ends is told like one that goes wrong, and of one that goes
 * wrong the shortest that was found by then: a test that runs out of time tells nothing of it.
 */
export function searchFor(numRuns: number, patienceMs: number): fc.Parameters<unknown> {
  return {
    numRuns,
    timeout: 20_000,
    interruptAfterTimeLimit: patienceMs - 30_000,
    markInterruptAsFailure: true,
  };
}
