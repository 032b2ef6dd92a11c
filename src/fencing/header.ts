/**
 * The header that a fence travels in: `Holdfast-Fence: 1763259694000000;key=nightly-report`. The key is percent-encoded, as a
 * header takes no other text than ASCII.
 */
import { checkKey, invalid } from "../store/index.ts";
import { type Fenced, type FenceTarget, fenceOf, parseFence, resourceOf } from "./fence.ts";

export const FENCE_HEADER = "Holdfast-Fence";

/** What stands in the header. */
export interface FenceHeader {
  readonly fence: bigint;
  /** Absent where the client leaves it to the service what it writes to. */
  readonly key?: string;
}

/** The value of the header for a lease. Throws if that is known to be lost. */
export function fenceHeader(lease: Fenced, target: FenceTarget = {}): string {
  const fence = fenceOf(lease);
  return `${fence};key=${encodeURIComponent(resourceOf(lease, target.resource))}`;
}

/** Reads the header. Throws `INVALID_ARGUMENT` for anything else than a fence and, perhaps, a key. */
export function parseFenceHeader(value: string): FenceHeader {
  const [, digits, encoded] = /^[ \t]*(\d+)[ \t]*(?:;[ \t]*key=([^\s;,]*))?[ \t]*$/.exec(value) ?? [];
  if (digits === undefined) throw malformed(value);
  const fence = parseFence(digits);
  return encoded === undefined ? { fence } : { fence, key: checkKey(decoded(encoded, value)) };
}

function decoded(encoded: string, value: string): string {
  try {
    return decodeURIComponent(encoded);
  } catch {
    throw malformed(value);
  }
}

function malformed(value: string): Error {
  return invalid(
    `${FENCE_HEADER} must be a fence and a percent-encoded key, as in "1763259694000000;key=nightly-report", not ${JSON.stringify(value.slice(0, 80))}.`,
  );
}
