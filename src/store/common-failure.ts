/**
 * The failure that all of these have in common, as where a call has failed as a whole; undefined where they have none.
 *
 * What each has by itself must be told to each by itself: (1) The record of one claim is damaged, which cannot be mended, and in the same
 * call the database of another one is away for a moment. (2) The first failure is told of both. (3) Whoever waits for the second claim
 * gives up for good.
 */
export function commonFailure(settled: readonly PromiseSettledResult<unknown>[]): unknown {
  const [first] = settled;
  if (first?.status !== "rejected") return undefined;
  const isCommon = settled.every((each) => each.status === "rejected" && each.reason === first.reason);
  return isCommon ? first.reason : undefined;
}
