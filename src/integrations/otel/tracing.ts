/**
 * Spans: `holdfast.acquire` from the call to how it ended, and `holdfast.hold` from the grant to the end of the lease.
 *
 * Both are children of what was active when the lock was asked for, and each links to the other: a lease may well outlive the
 * call that got it, so holding is not a part of asking.
 */
import {
  type Attributes,
  type Context,
  context,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
} from "@opentelemetry/api";
import type {
  AcquireEvent,
  checkKeyLabel,
  EventClaim,
  EventHandlers,
  GrantedEvent,
  Trouble,
} from "../../client/index.ts";
import { attributes as names } from "./attributes.ts";

interface Traced {
  /** What was active when the lock was asked for. */
  readonly parent: Context;
  /** The span that is open: of asking first, then of holding. */
  span: Span;
}

export class Tracing {
  readonly #tracer: Tracer;
  readonly #label: ReturnType<typeof checkKeyLabel> | undefined;
  readonly #open = new Map<EventClaim, Traced>();

  /** `label` makes what is told of keys: `undefined` tells the key itself, and what errors say. */
  constructor(tracer: Tracer, label: ReturnType<typeof checkKeyLabel> | undefined) {
    this.#tracer = tracer;
    this.#label = label;
  }

  readonly handlers: EventHandlers = {
    acquire: (event) => this.#asked(event),
    waiting: ({ claim }) => void this.#open.get(claim)?.span.addEvent("waiting"),
    granted: (event) => this.#granted(event),
    contended: ({ claim }) => this.#end(claim, "contended"),
    timeout: ({ claim }) => this.#fail(claim, "timeout", { code: "ACQUIRE_TIMEOUT" }),
    cancelled: ({ claim, reason }) => this.#end(claim, "cancelled", { [names.reason]: reason }),
    failed: (event) => this.#fail(event.claim, "failed", event),
    "renewal-failed": ({ claim, code, leftMs }) => {
      const told = { [names.errorType]: code, "holdfast.left_ms": leftMs };
      this.#open.get(claim)?.span.addEvent("renewal-failed", told);
    },
    extended: ({ claim, ttlMs }) => {
      this.#open.get(claim)?.span.addEvent("extended", { [names.ttlMs]: ttlMs });
    },
    lost: ({ claim, reason, error }) => {
      const trouble = error === undefined ? { code: "LEASE_LOST" as const } : { code: error.code, error };
      this.#fail(claim, "lost", trouble, { [names.reason]: reason });
    },
    released: ({ claim, wasHeld }) => {
      if (wasHeld) this.#end(claim, "released");
      else this.#fail(claim, "lost", { code: "LEASE_LOST" }, { [names.reason]: "gone" });
    },
    "release-failed": (event) => this.#fail(event.claim, "release-failed", event),
    detached: ({ claim }) => this.#end(claim, "detached"),
  };

  /** Ends what is open, of which nothing more will be heard. */
  end(): void {
    for (const { span } of this.#open.values()) span.end();
    this.#open.clear();
  }

  #asked({ claim, again }: AcquireEvent): void {
    // A lost lease is won again by the client itself, in whatever context its loop happens to run.
    const parent = again ? ROOT_CONTEXT : context.active();
    const options = { kind: SpanKind.INTERNAL, attributes: this.#describe(claim) };
    this.#open.set(claim, { parent, span: this.#tracer.startSpan("holdfast.acquire", options, parent) });
  }

  #granted({ claim, fence }: GrantedEvent): void {
    const asking = this.#open.get(claim);
    const parent = asking?.parent ?? ROOT_CONTEXT;
    const told = { [names.fence]: String(fence) };
    const holding = this.#tracer.startSpan(
      "holdfast.hold",
      {
        kind: SpanKind.INTERNAL,
        attributes: { ...this.#describe(claim), ...told },
        links: asking === undefined ? [] : [{ context: asking.span.spanContext() }],
      },
      parent,
    );
    asking?.span.addLink({ context: holding.spanContext() });
    this.#end(claim, "granted", told);
    this.#open.set(claim, { parent, span: holding });
  }

  #end(claim: EventClaim, outcome: string, more: Attributes = {}): void {
    const traced = this.#open.get(claim);
    if (traced === undefined) return;
    this.#open.delete(claim);
    traced.span.setAttributes({ [names.outcome]: outcome, ...more });
    traced.span.end();
  }

  #fail(
    claim: EventClaim,
    outcome: string,
    { code, error }: Pick<Trouble, "code" | "error">,
    more: Attributes = {},
  ): void {
    const span = this.#open.get(claim)?.span;
    const told = this.#label === undefined ? error : undefined;
    if (told !== undefined) span?.recordException(told);
    span?.setStatus({ code: SpanStatusCode.ERROR, ...(told === undefined ? {} : { message: told.message }) });
    this.#end(claim, outcome, { [names.errorType]: code, ...more });
  }

  #describe(claim: EventClaim): Attributes {
    const key = this.#keyOf(claim);
    return {
      [names.store]: claim.store,
      [names.claimId]: claim.id,
      [names.owner]: claim.owner,
      [names.weight]: claim.weight,
      [names.priority]: claim.priority,
      [names.ttlMs]: claim.ttlMs,
      ...(claim.application === "" ? {} : { [names.application]: claim.application }),
      ...(key === undefined ? {} : { [names.key]: key }),
    };
  }

  #keyOf({ key }: EventClaim): string | undefined {
    if (key === undefined || this.#label === undefined) return key;
    return this.#label === false ? undefined : this.#label(key);
  }
}
