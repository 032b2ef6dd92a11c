/** The order in which every batch takes its keys, so that no two wait for each other: that of their bytes in UTF-8. */
import type { Change } from "../cas/index.ts";

/**
 * Bytes in UTF-8 have the order of code points. Strings are compared by halves of surrogate pairs, which come before the
 * last characters of those that need no pair.
 */
export function byBytes(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at++) {
    const one = a.charCodeAt(at);
    const other = b.charCodeAt(at);
    if (one !== other) return rank(one) - rank(other);
  }
  return a.length - b.length;
}

function rank(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}

export interface OrderedChanges {
  readonly changes: readonly Change[];
  /** The places that they had before, where they had others. */
  readonly places?: readonly number[];
}

export function inOrder(changes: readonly Change[]): OrderedChanges {
  if (isInOrder(changes)) return { changes };
  const before = changes.map((change, place) => ({ change, place }));
  before.sort((a, b) => byBytes(a.change.key, b.change.key));
  return { changes: before.map(({ change }) => change), places: before.map(({ place }) => place) };
}

function isInOrder(changes: readonly Change[]): boolean {
  let last: string | undefined;
  for (const { key } of changes) {
    if (last !== undefined && byBytes(last, key) > 0) return false;
    last = key;
  }
  return true;
}
