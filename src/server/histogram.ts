/** A distribution of durations that costs a few nanoseconds to add to; several of these are added to in every lock cycle. */

/** From a tenth of a millisecond to an hour. */
const BOUNDS_S = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 3_600];

class Series {
  readonly counts = new Array<number>(BOUNDS_S.length + 1).fill(0);
  sum = 0;

  add(seconds: number): void {
    let place = 0;
    while (place < BOUNDS_S.length && seconds > (BOUNDS_S[place] as number)) place++;
    this.counts[place] = (this.counts[place] as number) + 1;
    this.sum += seconds;
  }
}

interface Value {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

/** In the form that a registry of prom-client asks its metrics for. */
export class Histogram {
  readonly name: string;
  readonly help: string;
  readonly #label: string;
  readonly #series = new Map<string, Series>();

  /** `label` names what the values are told apart by; empty where they are not. */
  constructor(name: string, help: string, label = "") {
    this.name = name;
    this.help = help;
    this.#label = label;
  }

  /** What durations of one kind are added to. Keep it: finding it costs more than adding. */
  of(kind = ""): (milliseconds: number) => void {
    let series = this.#series.get(kind);
    if (series === undefined) {
      series = new Series();
      this.#series.set(kind, series);
    }
    const found = series;
    return (milliseconds) => found.add(milliseconds / 1_000);
  }

  async get(): Promise<object> {
    const values: Value[] = [];
    for (const [kind, series] of this.#series) {
      const labels = this.#label === "" ? {} : { [this.#label]: kind };
      let count = 0;
      series.counts.forEach((more, place) => {
        count += more;
        const le = BOUNDS_S[place] ?? "+Inf";
        values.push({ metricName: `${this.name}_bucket`, labels: { ...labels, le }, value: count });
      });
      values.push({ metricName: `${this.name}_sum`, labels, value: series.sum });
      values.push({ metricName: `${this.name}_count`, labels, value: count });
    }
    const { name, help } = this;
    return { name, help, type: "histogram", values, aggregator: "sum" };
  }

  reset(): void {
    this.#series.clear();
  }
}
