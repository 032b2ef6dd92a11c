/** Keys and claims for people: the documented shapes of `--json`, and the cells of tables. */
import { type ClaimStatus, type KeyStatus, UNLIMITED } from "../store/index.ts";
import { roughDuration } from "./duration.ts";

/** A claim in JSON. Later versions may add fields, and remove none. */
export interface ClaimView {
  readonly id: string;
  readonly state: "held" | "waiting";
  /** A mutex, a reader, or permits of a semaphore. */
  readonly mode: "exclusive" | "shared" | "permits";
  readonly weight: number;
  /** null for a reader, which has no limit. */
  readonly limit: number | null;
  readonly priority: number;
  readonly ttlMs: number;
  readonly expiresInMs: number;
  /** A decimal string; null for a waiting claim. */
  readonly fence: string | null;
  /** On the store's clock; null for a waiting claim. */
  readonly acquiredAt: string | null;
  readonly owner: string;
  readonly info: string;
  readonly application: string;
}

/** A key in JSON. */
export interface KeyView {
  readonly key: string;
  readonly fence: string;
  readonly heldCount: number;
  readonly heldWeight: number;
  readonly waitingCount: number;
  readonly held: readonly ClaimView[];
  readonly waiting: readonly ClaimView[];
}

export function viewOfKey(status: KeyStatus): KeyView {
  const { key, fence, heldCount, heldWeight, waitingCount } = status;
  return {
    key,
    fence: fence.toString(),
    heldCount,
    heldWeight,
    waitingCount,
    held: status.held.map(viewOfClaim),
    waiting: status.waiting.map(viewOfClaim),
  };
}

export function viewOfClaim(claim: ClaimStatus): ClaimView {
  return {
    id: claim.id,
    state: claim.state,
    mode: modeOf(claim),
    weight: claim.weight,
    limit: claim.limit === UNLIMITED ? null : claim.limit,
    priority: claim.priority,
    ttlMs: claim.ttlMs,
    expiresInMs: Math.round(claim.expiresInMs),
    fence: claim.fence?.toString() ?? null,
    acquiredAt: claim.acquiredAtMs === undefined ? null : new Date(claim.acquiredAtMs).toISOString(),
    owner: claim.owner,
    info: claim.info,
    application: claim.application,
  };
}

function modeOf({ limit }: ClaimStatus): ClaimView["mode"] {
  if (limit === 1) return "exclusive";
  return limit === UNLIMITED ? "shared" : "permits";
}

/** The mode in a table: `exclusive`, `shared`, `2/4`. */
export function modeText({ mode, weight, limit }: ClaimView): string {
  return mode === "permits" ? `${weight}/${limit}` : mode;
}

export const keyHeadings = ["KEY", "HELD BY", "ID", "MODE", "EXPIRES IN", "FENCE", "WAITING", "INFO"];

/** A key as one row, with its first holder and the number of the others. */
export function keyRow(view: KeyView): string[] {
  const [first] = view.held;
  const waiting = `${view.waitingCount}`;
  if (first === undefined) return [view.key, "-", "-", "-", "-", view.fence, waiting, ""];
  const others = view.heldCount > 1 ? ` +${view.heldCount - 1}` : "";
  return [
    view.key,
    `${first.owner}${others}`,
    first.id,
    modeText(first),
    roughDuration(first.expiresInMs),
    first.fence ?? "-",
    waiting,
    first.info,
  ];
}

export const claimHeadings = ["STATE", "ID", "MODE", "PRIORITY", "EXPIRES IN", "FENCE", "OWNER", "INFO"];

export function claimRow(view: ClaimView): string[] {
  return [
    view.state,
    view.id,
    modeText(view),
    `${view.priority}`,
    roughDuration(view.expiresInMs),
    view.fence ?? "-",
    view.owner,
    view.info,
  ];
}
