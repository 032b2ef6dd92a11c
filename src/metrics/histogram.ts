/** A histogram of durations. Adding takes nanoseconds, because every lock cycle adds to several. */
import { type Labels, labelKey } from "./labels.ts";

/** From a tenth of a millisecond to an hour. Clients and servers share the bounds, so that their figures are comparable. */
export const DURATION_BOUNDS_S: readonly number[] = [
  0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 3_600,
];

class Series {
  readonly labels: Labels;
  readonly counts = new Array<number>(DURATION_BOUNDS_S.length + 1).fill(0);
  sum = 0;

  constructor(labels: Labels) {
    this.labels = labels;
  }

  add(seconds: number): void {
    let place = 0;
    while (place < DURATION_BOUNDS_S.length && seconds > (DURATION_BOUNDS_S[place] as number)) place++;
    this.counts[place] = (this.counts[place] as number) + 1;
    this.sum += seconds;
  }
}

interface Value {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

/** A metric for a registry of prom-client. */
export class Histogram {
  readonly name: string;
  readonly help: string;
  readonly #series = new Map<string, Series>();

  constructor(name: string, help: string) {
    this.name = name;
    this.help = help;
  }

  /** Returns the function that adds durations with these labels. Keep it, because finding it costs more than adding. */
  of(labels: Labels = {}): (milliseconds: number) => void {
    const key = labelKey(labels);
    const series = this.#series.get(key) ?? new Series(labels);
    this.#series.set(key, series);
    return (milliseconds) => series.add(milliseconds / 1_000);
  }

  async get(): Promise<object> {
    const values: Value[] = [];
    for (const { labels, counts, sum } of this.#series.values()) {
      let count = 0;
      counts.forEach((more, place) => {
        count += more;
        const le = DURATION_BOUNDS_S[place] ?? "+Inf";
        values.push({ metricName: `${this.name}_bucket`, labels: { ...labels, le }, value: count });
      });
      values.push({ metricName: `${this.name}_sum`, labels, value: sum });
      values.push({ metricName: `${this.name}_count`, labels, value: count });
    }
    const { name, help } = this;
    return { name, help, type: "histogram", values, aggregator: "sum" };
  }

  /** In place, because the functions of `of` keep their series. */
  reset(): void {
    for (const series of this.#series.values()) {
      series.counts.fill(0);
      series.sum = 0;
    }
  }
}
