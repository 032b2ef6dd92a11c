import type { Lane } from "./lane.ts";
import type { Combined, Operation } from "./operation.ts";

/** One lane's part of a flight. */
export class Passenger {
  readonly lane: Lane;
  readonly operations: readonly Operation[];
  readonly combined: Combined;
  /** Whether nothing was known of the key. Then a conflict is no news of other processes. */
  readonly isGuess: boolean;

  constructor(lane: Lane, operations: readonly Operation[], combined: Combined, isGuess: boolean) {
    this.lane = lane;
    this.operations = operations;
    this.combined = combined;
    this.isGuess = isGuess;
  }
}

/** Mostly they are already. Seeing that takes less than sorting what is sorted. */
export function sorted(passengers: Passenger[], compareKeys: (a: string, b: string) => number): Passenger[] {
  let last: string | undefined;
  for (const { lane } of passengers) {
    if (last !== undefined && compareKeys(last, lane.key) > 0) {
      return passengers.sort((a, b) => compareKeys(a.lane.key, b.lane.key));
    }
    last = lane.key;
  }
  return passengers;
}
