import { HoldfastError, type RenewAnswer, type RenewRef, unsoundError } from "../store/index.ts";

/**
 * Renews those claims of a call that may be renewed. Each has an answer of its own: neither does a refusal cost the others their leases, nor
 * is it lost where the store fails for the others.
 *
 * @param refusals Why each must not be renewed; undefined where it may.
 */
export async function renewPermitted(
  refs: readonly RenewRef[],
  refusals: readonly (HoldfastError | undefined)[],
  renew: (permitted: readonly RenewRef[]) => Promise<readonly RenewAnswer[]>,
): Promise<readonly RenewAnswer[]> {
  const permitted = refs.filter((_, index) => refusals[index] === undefined);
  if (permitted.length === refs.length) return renew(refs);
  const answers = permitted.length === 0 ? [] : await renew(permitted).catch(failing(permitted));
  let next = 0;
  return refs.map(({ key }, index): RenewAnswer => {
    const refusal = refusals[index];
    if (refusal !== undefined) return { state: "failed", error: refusal };
    return answers[next++] ?? { state: "failed", error: unsoundError(key) };
  });
}

function failing(refs: readonly RenewRef[]): (error: unknown) => readonly RenewAnswer[] {
  return (cause) => refs.map(({ key }) => ({ state: "failed", error: HoldfastError.from(cause, key) }));
}
