import { type Labels, labelKey } from "./labels.ts";

/** One number, changed in place. */
export interface Cell {
  value: number;
}

/** Counts, or levels, in the form that a registry of prom-client asks its metrics for. */
export class Numbers {
  readonly name: string;
  readonly help: string;
  readonly #type: "counter" | "gauge";
  readonly #aggregator: "sum" | "min";
  readonly #cells = new Map<string, Cell & { readonly labels: Labels }>();

  /** `aggregator` says how the numbers of several processes become one, where prom-client gathers those of a cluster. */
  constructor(type: "counter" | "gauge", name: string, help: string, aggregator: "sum" | "min" = "sum") {
    this.name = name;
    this.help = help;
    this.#type = type;
    this.#aggregator = aggregator;
  }

  /** The number with these labels. Keep it: finding it costs more than counting. */
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

  /** In place, because whoever counts keeps the cell. A level stays: it says how things are. */
  reset(): void {
    if (this.#type === "gauge") return;
    for (const cell of this.#cells.values()) cell.value = 0;
  }
}
