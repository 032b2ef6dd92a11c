/** How much of a message references to claims take, and how long lists of them are cut to fit. */
import type { ClaimRef } from "../../store/index.ts";

/** At most how many bytes a reference takes in a message. */
export function sizeOf({ key, id, token }: ClaimRef): number {
  return 3 * (key.length + id.length + (token?.length ?? 0)) + 64;
}

export function sizeOfAll(refs: readonly ClaimRef[]): number {
  let size = 0;
  for (const ref of refs) size += sizeOf(ref);
  return size;
}

/** Cuts a list into parts of which a message holds each. */
export function partsOf<R extends ClaimRef>(
  refs: readonly R[],
  maxRefs: number,
  maxBytes: number,
): readonly (readonly R[])[] {
  if (refs.length <= 1 || (refs.length <= maxRefs && sizeOfAll(refs) <= maxBytes)) return [refs];
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
  return parts;
}
