/** The names under which spans and metrics tell things. OpenTelemetry has no conventions for locks, so these are Holdfast's own. */
export const attributes = {
  store: "holdfast.store",
  key: "holdfast.key",
  claimId: "holdfast.claim.id",
  owner: "holdfast.owner",
  application: "holdfast.application",
  weight: "holdfast.weight",
  priority: "holdfast.priority",
  ttlMs: "holdfast.ttl_ms",
  fence: "holdfast.fence",
  /** How it ended: see docs/observability.md. */
  outcome: "holdfast.outcome",
  reason: "holdfast.reason",
  /** Of a claim: held or waiting. */
  state: "holdfast.state",
  warning: "holdfast.warning",
  /** By the conventions of OpenTelemetry: the code of the error. */
  errorType: "error.type",
} as const;
