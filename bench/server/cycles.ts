/** Lock cycles on keys that nobody else wants: as many as go. */
import type { Contender } from "../redis/contenders.ts";
import { timed } from "../rounds.ts";

/** How long one cycle took, callers side by side, in nanoseconds. */
export function measureCycles(
  contender: Contender,
  name: string,
  callers: number,
  cycles: number,
): Promise<number> {
  const each = Math.ceil(cycles / callers);
  const call = async (caller: number) => {
    const key = `bench:${name}:${caller}`;
    for (let cycle = 0; cycle < each; cycle++) await (await contender.acquire(key))();
  };
  return timed(each * callers, () =>
    Promise.all(Array.from({ length: callers }, (_, caller) => call(caller))),
  );
}
