/** The metrics of the server, for Prometheus. */
import { Counter, collectDefaultMetrics, Gauge, type Metric, Registry } from "prom-client";
import { Histogram } from "../metrics/index.ts";
import { errorCodes } from "./call-errors.ts";

/** Plain numbers, which change several times per lock cycle. The registry reads them on request. */
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
  /** Set by the claim registry. */
  claims: () => { readonly held: number; readonly waiting: number; readonly longestQueue: number } = () => ({
    held: 0,
    waiting: 0,
    longestQueue: 0,
  });
  // All kinds begin at 0: Prometheus sees no increase in a counter that appears with its first event.
  readonly refusals = zeros(["contended", "queue-full", "id-reused"]);
  readonly errors = zeros([...errorCodes, "UNEXPECTED"]);
  /** Clients that were cut off, by reason. */
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
      // A registry uses only `name`, `get` and `reset` of a metric.
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
    this.#register(Counter, "grants_total", "Claims that were granted.", () => this.grants);
    this.#register(Counter, "renewals_total", "Heartbeats that were confirmed.", () => this.renewals);
    this.#register(Counter, "releases_total", "Claims that were released.", () => this.releases);
    const forced = "Claims that an administrator ended.";
    this.#register(Counter, "force_releases_total", forced, () => this.forceReleases);
    this.#register(Counter, "expiries_total", "Claims that ended without a release.", () => this.expiries);
    this.#register(Counter, "pushes_total", "Grants that were pushed to waiting clients.", () => this.pushes);
    this.#register(Counter, "refusals_total", "Claims that were refused.", () => this.refusals, "reason");
    this.#register(Counter, "errors_total", "Operations and calls that failed.", () => this.errors, "code");
    const dropped = "Clients that were cut off.";
    this.#register(Counter, "dropped_clients_total", dropped, () => this.dropped, "reason");
    this.#register(Gauge, "held_claims", "Leases held through this server.", () => this.claims().held);
    this.#register(
      Gauge,
      "waiting_claims",
      "Claims waiting through this server.",
      () => this.claims().waiting,
    );
    this.#register(Gauge, "longest_queue", "The longest queue of a key.", () => this.claims().longestQueue);
    this.#register(Gauge, "connections", "Open connections.", () => this.connections);
    this.#register(Gauge, "sessions", "Open sessions.", () => this.sessions);
    this.#register(Gauge, "streams", "Open streams of Acquire, AcquireMany and Watch.", () => this.streams);
    collectDefaultMetrics({ register: this.registry });
  }

  /** A metric that reads a number, or a number for each value of its label. */
  #register(
    kind: typeof Counter | typeof Gauge,
    name: string,
    help: string,
    read: () => number | ReadonlyMap<string, number>,
    label = "",
  ): void {
    const metric = new kind({
      name: `holdfast_${name}`,
      help,
      labelNames: label === "" ? [] : [label],
      registers: [],
      collect() {
        this.reset();
        const values = read();
        if (typeof values === "number") this.inc(values);
        else for (const [value, count] of values) this.inc({ [label]: value }, count);
      },
    });
    this.registry.registerMetric(metric);
  }
}

function zeros(kinds: readonly string[]): Map<string, number> {
  return new Map(kinds.map((kind) => [kind, 0]));
}

export function countUp(counts: Map<string, number>, kind: string): void {
  counts.set(kind, (counts.get(kind) ?? 0) + 1);
}
