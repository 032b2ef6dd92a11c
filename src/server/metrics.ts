/** What the server counts, for Prometheus. */
import { Counter, collectDefaultMetrics, Gauge, type Metric, Registry } from "prom-client";
import { Histogram } from "../metrics/index.ts";
import { errorCodes } from "./call-errors.ts";

/** Plain numbers, because they change several times in every lock cycle; the registry reads them when it is asked. */
export class Metrics {
  readonly registry = new Registry();
  grants = 0;
  renewals = 0;
  releases = 0;
  forceReleases = 0;
  expiries = 0;
  pushes = 0;
  sessions = 0;
  streams = 0;
  connections = 0;
  /** Set by whoever knows. */
  claims: () => { readonly held: number; readonly waiting: number; readonly longestQueue: number } = () => ({
    held: 0,
    waiting: 0,
    longestQueue: 0,
  });
  // From 0 on, since Prometheus sees no increase in a counter that appears with its first event.
  readonly refusals = zeros(["contended", "queue-full", "id-reused"]);
  readonly errors = zeros([...errorCodes, "UNEXPECTED"]);
  /** Clients that were cut off, by why. */
  readonly dropped = zeros([
    "foreign-host",
    "foreign-origin",
    "failed",
    "malformed",
    "memory",
    "no-hello",
    "pipelined",
    "silent",
    "slow-reader",
    "token",
    "version",
  ]);
  readonly addWait: (milliseconds: number) => void;
  readonly addHold: (milliseconds: number) => void;
  readonly addStore: Readonly<
    Record<"acquire" | "renew" | "release" | "look", (milliseconds: number) => void>
  >;

  constructor() {
    const waits = new Histogram("holdfast_wait_seconds", "How long claims waited that were granted.");
    const holds = new Histogram("holdfast_hold_seconds", "How long leases were held that were released.");
    const stores = new Histogram("holdfast_store_seconds", "How long the store took to answer.");
    for (const histogram of [waits, holds, stores]) {
      // A registry calls no more than `get` and `reset`, and knows a metric by its name.
      this.registry.registerMetric(histogram as unknown as Metric<string>);
    }
    this.addWait = waits.of();
    this.addHold = holds.of();
    this.addStore = {
      acquire: stores.of({ verb: "acquire" }),
      renew: stores.of({ verb: "renew" }),
      release: stores.of({ verb: "release" }),
      look: stores.of({ verb: "look" }),
    };
    this.#counter("grants_total", "Claims that were granted.", () => this.grants);
    this.#counter("renewals_total", "Heartbeats that were confirmed.", () => this.renewals);
    this.#counter("releases_total", "Claims that were given back.", () => this.releases);
    this.#counter("force_releases_total", "Claims that another client ended.", () => this.forceReleases);
    this.#counter("expiries_total", "Claims that ended without being given back.", () => this.expiries);
    this.#counter("pushes_total", "Grants that were pushed to waiting clients.", () => this.pushes);
    this.#counters("refusals_total", "Claims that were refused.", "reason", this.refusals);
    this.#counters("errors_total", "Operations and calls that failed.", "code", this.errors);
    this.#counters("dropped_clients_total", "Clients that were cut off.", "reason", this.dropped);
    this.#gauge("held_claims", "Leases that are held through this server.", () => this.claims().held);
    this.#gauge("waiting_claims", "Claims that wait through this server.", () => this.claims().waiting);
    this.#gauge("longest_queue", "The most that wait for one key.", () => this.claims().longestQueue);
    this.#gauge("connections", "Open connections.", () => this.connections);
    this.#gauge("sessions", "Open sessions.", () => this.sessions);
    this.#gauge("streams", "Open streams of Acquire, AcquireMany and Watch.", () => this.streams);
    collectDefaultMetrics({ register: this.registry });
  }

  #counter(name: string, help: string, value: () => number): void {
    this.registry.registerMetric(
      new Counter({
        name: `holdfast_${name}`,
        help,
        registers: [],
        collect() {
          this.reset();
          this.inc(value());
        },
      }),
    );
  }

  #counters(name: string, help: string, label: string, values: ReadonlyMap<string, number>): void {
    this.registry.registerMetric(
      new Counter({
        name: `holdfast_${name}`,
        help,
        labelNames: [label],
        registers: [],
        collect() {
          this.reset();
          for (const [kind, value] of values) this.inc({ [label]: kind }, value);
        },
      }),
    );
  }

  #gauge(name: string, help: string, value: () => number): void {
    this.registry.registerMetric(
      new Gauge({
        name: `holdfast_${name}`,
        help,
        registers: [],
        collect() {
          this.set(value());
        },
      }),
    );
  }
}

function zeros(kinds: readonly string[]): Map<string, number> {
  return new Map(kinds.map((kind) => [kind, 0]));
}

export function countUp(counts: Map<string, number>, kind: string): void {
  counts.set(kind, (counts.get(kind) ?? 0) + 1);
}
