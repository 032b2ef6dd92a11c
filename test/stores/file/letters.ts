/** Letters to the thread of a folder, without a thread. */
import { packChanges } from "../../../src/stores/file/change-format.js";
import type {
  Letter,
  Outcome,
  ReadRequest,
  SwapReply,
  SwapRequest,
} from "../../../src/stores/file/protocol.ts";

export interface Wish {
  readonly key: string;
  readonly text: string;
  /** 0: there must be no record. */
  readonly expected?: number;
  /** Default: for ever. */
  readonly keepUntilMs?: number;
}

export function letter(
  number: number,
  wishes: readonly Wish[],
  forgettableFromMs?: number,
): Letter & { readonly request: SwapRequest } {
  const changes = wishes.map(({ key, text, expected = 0, keepUntilMs = Number.MAX_SAFE_INTEGER }) => ({
    ...{ key, text, expected: expected === 0 ? undefined : expected },
    ...{ idle: false, keepUntilMs, dropped: [], wakes: [] },
  }));
  const window = { earliestMs: 0, latestMs: Number.MAX_SAFE_INTEGER };
  const request = { ...window, owners: [], forgettableFromMs };
  return { number, request: { verb: "swap", ...request, ...packChanges(changes) } };
}

/** What became of each wish: the version that it has now, or why it has none. */
export function outcomesOf(wishes: readonly Wish[], { version, others }: SwapReply): readonly Outcome[] {
  const outcomes: Outcome[] = wishes.map(() => version);
  for (const [place, outcome] of others) outcomes[place] = outcome;
  return outcomes;
}

export function reading(number: number, keys: readonly string[]): Letter & { readonly request: ReadRequest } {
  return { number, request: { verb: "read", keys } };
}
