/** How much of a message references to claims take, and how long lists of them are cut to fit. */
import type { ClaimRef } from "../../core/index.ts";

/** At most how many bytes a reference takes in a message. */
export function sizeOf(ref: ClaimRef): number {
  return 3 * (ref.key.length + ref.id.length + (ref.token?.length ?? 0)) + 64;
}

export function sizeOfAll(refs: readonly ClaimRef[]): number {
  let size = 0;
  for (const ref of refs) size += sizeOf(ref);
  return size;
}

/** Cuts a long list into parts that a message holds, and puts the answers together. */
export async function inParts<R extends ClaimRef, T>(
  refs: readonly R[],
  maxRefs: number,
  maxBytes: number,
  ask: (part: readonly R[]) => Promise<readonly T[]>,
): Promise<readonly T[]> {
  if (refs.length === 1 || (refs.length <= maxRefs && sizeOfAll(refs) <= maxBytes)) return ask(refs);
  const parts: R[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const ref of refs) {
    const size = sizeOf(ref);
    let part = parts.at(-1);
    if (part === undefined || bytes + size > maxBytes || part.length >= maxRefs) {
      part = [];
      parts.push(part);
      bytes = 0;
    }
    part.push(ref);
    bytes += size;
  }
  return (await Promise.all(parts.map(ask))).flat();
}
