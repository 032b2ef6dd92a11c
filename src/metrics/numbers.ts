import { type Labels, labelKey } from "./labels.ts";

/** A number that is changed in place. */
export interface Cell {
  value: number;
}

/** Counters or gauges for a registry of prom-client. */
export class Numbers {
  readonly name: string;
  readonly help: string;
  readonly #type: "counter" | "gauge";
  readonly #aggregator: "sum" | "min";
  readonly #cells = new Map<string, Cell & { readonly labels: Labels }>();

  /** `aggregator` combines the numbers of several processes when prom-client collects those of a cluster. */
  constructor(type: "counter" | "gauge", name: string, help: string, aggregator: "sum" | "min" = "sum") {
    this.name = name;
    this.help = help;
    this.#type = type;
    this.#aggregator = aggregator;
  }

  /** The number with these labels. Keep it, because finding it costs more than counting. */
  of(labels: Labels = {}): Cell {
    const key = labelKey(labels);
    const cell = this.#cells.get(key) ?? { labels, value: 0 };
    this.#cells.set(key, cell);
    return cell;
  }

  async get(): Promise<object> {
    const values = [...this.#cells.values()].map(({ labels, value }) => ({ labels, value }));
    const { name, help } = this;
    return { name, help, type: this.#type, values, aggregator: this.#aggregator };
  }

  /** Resets counters in place, because callers keep their cells. A gauge keeps its value. */
  reset(): void {
    if (this.#type === "gauge") return;
    for (const cell of this.#cells.values()) cell.value = 0;
  }
}
