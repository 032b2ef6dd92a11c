/** What the clients of this process count. Plain numbers, because they change several times in every lock cycle. */
import { type checkKeyLabel, type EventClaim, observe } from "../../client/index.ts";
import { type Cell, Histogram, type Labels, Numbers, Presence } from "../../metrics/index.ts";
import type { Unsubscribe } from "../../store/index.ts";

/** The numbers of one store, or of one store and one label for keys. */
interface Series {
  readonly labels: Labels;
  readonly acquires: Cell;
  readonly grants: Cell;
  readonly renewals: Cell;
  readonly releases: Cell;
  readonly held: Cell;
  readonly waiting: Cell;
  readonly addWait: (milliseconds: number) => void;
  readonly addHold: (milliseconds: number) => void;
}

const change = (cell: Cell, by: 1 | -1) => {
  cell.value += by;
};

export class ClientMetrics {
  readonly all: (Numbers | Histogram)[] = [];
  readonly #label: ReturnType<typeof checkKeyLabel>;
  readonly #series = new Map<string, Series>();
  readonly #held = new Presence<EventClaim, Cell>(change);
  readonly #waiting = new Presence<EventClaim, Cell>(change);
  /** For each store the clients that it does not answer. */
  readonly #down = new Map<string, Set<string>>();

  readonly #acquires = this.#counter("acquires_total", "Calls that asked for a lock.");
  readonly #grants = this.#counter("grants_total", "Claims that were granted.");
  readonly #renewals = this.#counter("renewals_total", "Heartbeats that were confirmed.");
  readonly #renewalFailures = this.#counter(
    "renewal_failures_total",
    "Heartbeats of held leases that failed.",
  );
  readonly #releases = this.#counter("releases_total", "Claims that were given back.");
  readonly #forceReleases = this.#counter("force_releases_total", "Claims that another client ended.");
  readonly #refusals = this.#counter("refusals_total", "Claims that were refused.");
  readonly #timeouts = this.#counter("timeouts_total", "Calls whose time to wait was over.");
  readonly #cancellations = this.#counter("cancellations_total", "Claims whose calls were cancelled.");
  readonly #losses = this.#counter("losses_total", "Leases that were lost.");
  readonly #errors = this.#counter("errors_total", "Operations and calls that failed.");
  readonly #outages = this.#counter("outages_total", "How often the store became unavailable.");
  readonly #skipped = this.#counter("skipped_total", "Tries that were skipped because of an outage.");
  readonly #warnings = this.#counter("warnings_total", "Warnings that were told.");
  readonly #heldClaims = this.#gauge("held_claims", "Leases that are held.");
  readonly #waitingClaims = this.#gauge("waiting_claims", "Claims that wait.");
  readonly #available = this.#gauge(
    "store_available",
    "Whether the store answers, as far as is known.",
    "min",
  );
  readonly #waits = this.#add(
    new Histogram("holdfast_wait_seconds", "How long claims waited that were granted."),
  );
  readonly #holds = this.#add(
    new Histogram("holdfast_hold_seconds", "How long leases were held that were released."),
  );

  /** What the label `key` is made by; `false` where there is none. */
  constructor(label: ReturnType<typeof checkKeyLabel>) {
    this.#label = label;
  }

  listen(): Unsubscribe {
    return observe({
      acquire: ({ claim, again }) => {
        if (!again) this.#of(claim).acquires.value++;
      },
      waiting: ({ claim }) => this.#waiting.enter(claim, this.#of(claim).waiting),
      granted: ({ claim, waitedMs }) => this.#granted(claim, waitedMs),
      contended: ({ claim }) => count(this.#refusals, this.#labels(claim), { reason: "contended" }),
      timeout: ({ claim }) => {
        this.#waiting.leave(claim);
        count(this.#timeouts, this.#labels(claim));
      },
      cancelled: ({ claim, reason }) => {
        this.#waiting.leave(claim);
        count(this.#cancellations, this.#labels(claim), { reason });
      },
      failed: ({ claim, code }) => {
        this.#waiting.leave(claim);
        count(this.#errors, this.#labels(claim), { code });
      },
      renewed: ({ claim }) => {
        this.#of(claim).renewals.value++;
      },
      "renewal-failed": ({ claim, code }) => count(this.#renewalFailures, this.#labels(claim), { code }),
      lost: ({ claim, reason }) => {
        this.#held.leave(claim);
        count(this.#losses, this.#labels(claim), { reason });
      },
      released: ({ claim, heldMs }) => this.#gaveBack(claim, heldMs),
      "release-failed": ({ claim, heldMs, code }) => {
        this.#gaveBack(claim, heldMs);
        count(this.#errors, this.#labels(claim), { code });
      },
      detached: ({ claim }) => this.#held.leave(claim),
      "force-released": (event) => {
        if (event.released) count(this.#forceReleases, this.#labels(event));
      },
      "store-unavailable": ({ store, owner }) => {
        count(this.#outages, { store });
        this.#answers(store, owner, false);
      },
      "store-available": ({ store, owner }) => this.#answers(store, owner, true),
      closed: ({ store, owner }) => {
        if (this.#down.get(store)?.has(owner) === true) this.#answers(store, owner, true);
      },
      warning: (event) => {
        count(this.#warnings, this.#labels(event), { code: event.code });
        if (event.code === "SKIPPED_UNAVAILABLE") count(this.#skipped, this.#labels(event));
      },
    });
  }

  #granted(claim: EventClaim, waitedMs: number): void {
    const series = this.#of(claim);
    series.grants.value++;
    series.addWait(waitedMs);
    this.#waiting.leave(claim);
    this.#held.enter(claim, series.held);
  }

  #gaveBack(claim: EventClaim, heldMs: number): void {
    const series = this.#of(claim);
    series.releases.value++;
    series.addHold(heldMs);
    this.#held.leave(claim);
  }

  /** A store counts as available while it answers all of the clients. */
  #answers(store: string, owner: string, does: boolean): void {
    const down = this.#down.get(store) ?? new Set();
    this.#down.set(store, down);
    if (does) down.delete(owner);
    else down.add(owner);
    this.#available.of({ store }).value = down.size === 0 ? 1 : 0;
  }

  #of(claim: EventClaim): Series {
    const name = this.#label === false ? claim.store : `${claim.store}\n${this.#labelOf(claim.key)}`;
    let series = this.#series.get(name);
    if (series === undefined) {
      series = this.#newSeries(this.#labels(claim));
      this.#series.set(name, series);
    }
    return series;
  }

  #newSeries(labels: Labels): Series {
    const { store = "" } = labels;
    // Until something else is heard of it, a store is taken to answer.
    if (!this.#down.has(store)) this.#answers(store, "", true);
    return {
      labels,
      acquires: this.#acquires.of(labels),
      grants: this.#grants.of(labels),
      renewals: this.#renewals.of(labels),
      releases: this.#releases.of(labels),
      held: this.#heldClaims.of(labels),
      waiting: this.#waitingClaims.of(labels),
      addWait: this.#waits.of(labels),
      addHold: this.#holds.of(labels),
    };
  }

  #labels({ store, key }: { readonly store: string; readonly key: string | undefined }): Labels {
    return this.#label === false ? { store } : { store, key: this.#labelOf(key) };
  }

  /** Empty for a key that is withheld. */
  #labelOf(key: string | undefined): string {
    return key === undefined || this.#label === false ? "" : String(this.#label(key) ?? "");
  }

  #counter(name: string, help: string): Numbers {
    return this.#add(new Numbers("counter", `holdfast_${name}`, help));
  }

  #gauge(name: string, help: string, aggregator: "sum" | "min" = "sum"): Numbers {
    return this.#add(new Numbers("gauge", `holdfast_${name}`, help, aggregator));
  }

  #add<M extends Numbers | Histogram>(metric: M): M {
    this.all.push(metric);
    return metric;
  }
}

/** Adds one, to what changes seldom enough to be looked up each time. */
function count(numbers: Numbers, labels: Labels, more?: Labels): void {
  numbers.of(more === undefined ? labels : { ...labels, ...more }).value++;
}
