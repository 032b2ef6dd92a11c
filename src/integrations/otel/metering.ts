/** Metrics, by the conventions of OpenTelemetry: durations in seconds, no unit in a name, no key unless somebody asks for it. */
import type { Attributes, Counter, Histogram, Meter, UpDownCounter } from "@opentelemetry/api";
import type { checkKeyLabel, EventClaim, EventHandlers } from "../../client/index.ts";
import { DURATION_BOUNDS_S, Presence } from "../../metrics/index.ts";
import type { LossReason } from "../../store/index.ts";
import { attributes as names } from "./attributes.ts";

const seconds = { unit: "s", advice: { explicitBucketBoundaries: [...DURATION_BOUNDS_S] } };

const lostBy = (reason: LossReason): Attributes => ({
  [names.outcome]: "lost",
  [names.reason]: reason,
  [names.errorType]: "LEASE_LOST",
});

/** What a metric is told by: the store, and the key where there is a label for it. */
interface Subject {
  readonly store: string;
  readonly key: string | undefined;
}

export class Metering {
  readonly #label: ReturnType<typeof checkKeyLabel>;
  readonly #acquireDuration: Histogram;
  readonly #holdDuration: Histogram;
  readonly #claims: UpDownCounter;
  readonly #renewals: Counter;
  readonly #outages: Counter;
  readonly #forceReleases: Counter;
  readonly #warnings: Counter;
  readonly #waiting = new Presence<EventClaim, Attributes>((level, by) => this.#claims.add(by, level));
  readonly #held = new Presence<EventClaim, Attributes>((level, by) => this.#claims.add(by, level));

  constructor(meter: Meter, label: ReturnType<typeof checkKeyLabel>) {
    this.#label = label;
    this.#acquireDuration = meter.createHistogram("holdfast.client.acquire.duration", {
      description: "How long calls took that asked for a lock, waiting included.",
      ...seconds,
    });
    this.#holdDuration = meter.createHistogram("holdfast.client.hold.duration", {
      description: "How long leases were held.",
      ...seconds,
    });
    this.#claims = meter.createUpDownCounter("holdfast.client.claim.count", {
      description: "Claims that are held or that wait.",
      unit: "{claim}",
    });
    this.#renewals = meter.createCounter("holdfast.client.renewals", {
      description: "Heartbeats of held leases that were confirmed or failed.",
      unit: "{renewal}",
    });
    this.#outages = meter.createCounter("holdfast.client.outages", {
      description: "How often the store became unavailable.",
      unit: "{outage}",
    });
    this.#forceReleases = meter.createCounter("holdfast.client.force_releases", {
      description: "Claims of others that were ended by force.",
      unit: "{claim}",
    });
    this.#warnings = meter.createCounter("holdfast.client.warnings", {
      description: "Warnings; SKIPPED_UNAVAILABLE is a try that was skipped because of an outage.",
      unit: "{warning}",
    });
  }

  readonly handlers: EventHandlers = {
    waiting: ({ claim }) => this.#waiting.enter(claim, this.#of(claim, { [names.state]: "waiting" })),
    granted: ({ claim, waitedMs }) => {
      this.#asked(claim, waitedMs, "granted");
      this.#held.enter(claim, this.#of(claim, { [names.state]: "held" }));
    },
    contended: ({ claim, waitedMs }) => this.#asked(claim, waitedMs, "contended"),
    timeout: ({ claim, waitedMs }) => this.#asked(claim, waitedMs, "timeout", "ACQUIRE_TIMEOUT"),
    cancelled: ({ claim, waitedMs }) => this.#asked(claim, waitedMs, "cancelled"),
    failed: ({ claim, waitedMs, code }) => this.#asked(claim, waitedMs, "failed", code),
    renewed: ({ claim }) => this.#renewals.add(1, this.#of(claim, { [names.outcome]: "confirmed" })),
    "renewal-failed": ({ claim, code }) => {
      this.#renewals.add(1, this.#of(claim, { [names.outcome]: "failed", [names.errorType]: code }));
    },
    lost: ({ claim, heldMs, reason }) => {
      this.#ended(claim, heldMs, lostBy(reason));
    },
    released: ({ claim, heldMs, wasHeld }) => {
      this.#ended(claim, heldMs, wasHeld ? { [names.outcome]: "released" } : lostBy("gone"));
    },
    "release-failed": ({ claim, heldMs, code }) => {
      this.#ended(claim, heldMs, { [names.outcome]: "release-failed", [names.errorType]: code });
    },
    detached: ({ claim, heldMs }) => this.#ended(claim, heldMs, { [names.outcome]: "detached" }),
    "force-released": (event) => {
      if (event.released) this.#forceReleases.add(1, this.#of(event));
    },
    "store-unavailable": ({ store }) => this.#outages.add(1, { [names.store]: store }),
    warning: (event) => this.#warnings.add(1, this.#of(event, { [names.warning]: event.code })),
  };

  /** What is held and waits is no longer known of. */
  end(): void {
    this.#waiting.clear();
    this.#held.clear();
  }

  #asked(claim: EventClaim, waitedMs: number, outcome: string, error?: string): void {
    this.#waiting.leave(claim);
    const trouble = error === undefined ? {} : { [names.errorType]: error };
    this.#acquireDuration.record(waitedMs / 1_000, this.#of(claim, { [names.outcome]: outcome, ...trouble }));
  }

  #ended(claim: EventClaim, heldMs: number, more: Attributes): void {
    this.#held.leave(claim);
    this.#holdDuration.record(heldMs / 1_000, this.#of(claim, more));
  }

  #of({ store, key }: Subject, more: Attributes = {}): Attributes {
    const label = this.#label === false || key === undefined ? undefined : this.#label(key);
    return { [names.store]: store, ...(label === undefined ? {} : { [names.key]: label }), ...more };
  }
}
