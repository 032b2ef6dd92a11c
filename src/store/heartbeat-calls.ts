/** The most claims in one call, so that no single request blocks the store or grows without bound. */
const MAX_BATCH = 1_000;

/** What goes out together: all of it, unless that is too much for one call. */
export function batches<T>(items: readonly T[]): readonly (readonly T[])[] {
  if (items.length <= MAX_BATCH) return items.length === 0 ? [] : [items];
  const count = Math.ceil(items.length / MAX_BATCH);
  return Array.from({ length: count }, (_, nth) => items.slice(nth * MAX_BATCH, (nth + 1) * MAX_BATCH));
}

/**
 * The heartbeats that are due, call by call. A call is answered as a whole, so what the store has kept silent about goes by itself: one server of
 * several that hangs must not keep the answers of all others from being heard. Whatever is answered by itself goes together with the others again.
 *
 * @param due With how many heartbeats of each in a row have not even failed.
 */
export function heartbeatCalls<T extends { readonly silences: number }>(
  due: readonly T[],
): readonly (readonly T[])[] {
  if (due.every(({ silences }) => silences === 0)) return batches(due);
  const heard = due.filter(({ silences }) => silences === 0);
  const alone = due.filter(({ silences }) => goesAlone(silences));
  const silent = due.filter(({ silences }) => silences > 0 && !goesAlone(silences));
  return [...batches(heard), ...batches(silent), ...alone.map((one) => [one])];
}

/** After 1 silence, and after 4, 16, 64 …: what hangs for long must not pile up, one call for each claim and attempt. */
function goesAlone(silences: number): boolean {
  return silences > 0 && Math.log2(silences) % 2 === 0;
}
