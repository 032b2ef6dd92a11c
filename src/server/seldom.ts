/** Lets things be told once in a while, however often they happen: nobody may fill a disk with lines of a log. */
export class Seldom {
  readonly #everyMs: number;
  readonly #kinds = new Map<string, { toldMs: number; times: number }>();

  /** There must be few kinds, which are not for others to make up. */
  constructor(everyMs: number) {
    this.#everyMs = everyMs;
  }

  /** Something has happened. How often it has since it was last told; 0 when that was not long enough ago to tell it again. */
  add(kind: string, nowMs: number): number {
    const known = this.#kinds.get(kind) ?? { toldMs: Number.NEGATIVE_INFINITY, times: 0 };
    this.#kinds.set(kind, known);
    known.times++;
    if (nowMs - known.toldMs < this.#everyMs) return 0;
    const { times } = known;
    known.toldMs = nowMs;
    known.times = 0;
    return times;
  }
}
