/** Looks for a history that the script and the record machine answer differently. */
import fc from "fast-check";
import type { Differential } from "./differential.ts";
import { historyArbitrary } from "./differential-histories.ts";

/** How many histories are drawn from one seed. They take about a second. */
const HISTORIES_PER_SEED = 25;

/** When to be content with a history that is not shrunk to the end. */
const LONGEST_SEARCH_MS = 90_000;

export interface Found {
  readonly seed: number;
  /** Leads from the seed to the history, shrunk. */
  readonly path: string;
  readonly story: string;
}

export interface SearchOptions {
  readonly seed: number;
  /** How many operations to play at the least. */
  readonly operations: number;
  /** Where to go on from; then nothing else is played. */
  readonly path?: string;
  readonly shrink?: boolean;
}

/** Plays random histories, until there was a difference or enough of them. */
export async function findDifference(
  differential: Differential,
  { seed, operations, path, shrink = true }: SearchOptions,
): Promise<Found | undefined> {
  const property = fc.asyncProperty(historyArbitrary, (history) => differential.play(history));
  const until = differential.operations + operations;
  for (let next = seed; differential.operations < until; next++) {
    const replayed = path === undefined ? { numRuns: HISTORIES_PER_SEED } : { numRuns: 1, path };
    const result = await fc.check(property, {
      seed: next,
      endOnFailure: !shrink,
      interruptAfterTimeLimit: LONGEST_SEARCH_MS,
      ...replayed,
    });
    if (result.failed) {
      const story = result.errorInstance instanceof Error ? result.errorInstance.message : "";
      return { seed: next, path: result.counterexamplePath ?? "", story };
    }
    if (path !== undefined) return undefined;
  }
  return undefined;
}
