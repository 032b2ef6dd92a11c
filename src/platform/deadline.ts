/**
 * A moment on the monotonic clock at which something is due or ends, in whole milliseconds; `undefined` is never.
 *
 * V8 keeps a whole number within the object that has it, for the first 24 days of a process, and any other number in a box of
 * 16 bytes. A claim has half a dozen deadlines, and there may be a million claims.
 */
export type Deadline = number | undefined;

const NEVER = Number.POSITIVE_INFINITY;

/** What must not be counted on beyond this moment ends then. */
export function noLaterThan(ms: number): Deadline {
  return ms === NEVER ? undefined : Math.floor(ms);
}

/** What must not happen before this moment is due then. */
export function noSoonerThan(ms: number): Deadline {
  return ms === NEVER ? undefined : Math.ceil(ms);
}

export function earliest(a: Deadline, b: Deadline): Deadline {
  if (a === undefined) return b;
  return b === undefined ? a : Math.min(a, b);
}

export function hasCome(deadline: Deadline, nowMs: number): boolean {
  return deadline !== undefined && nowMs >= deadline;
}
