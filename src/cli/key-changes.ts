/** The changes between two listings of keys. */
import type { ClaimView, KeyView } from "./claim-view.ts";

/** A change in JSON, as `holdfast watch --json` prints it. */
export interface KeyChange {
  /**
   * `waiting`: the claim joined the queue. `held`: it holds the key, perhaps again with another fence. `ended`: it was released,
   * expired, was ended by force, or left the queue.
   */
  readonly event: "waiting" | "held" | "ended";
  readonly key: string;
  /** Its latest known state. */
  readonly claim: ClaimView;
}

type Claims = ReadonlyMap<string, { readonly key: string; readonly claim: ClaimView }>;

/** The claims of a listing by key and id. */
export function claimsOf(views: Iterable<KeyView>): Claims {
  const claims = new Map<string, { key: string; claim: ClaimView }>();
  for (const { key, held, waiting } of views) {
    // Unique, because keys and ids contain no control character.
    for (const claim of [...held, ...waiting]) claims.set(`${key}\n${claim.id}`, { key, claim });
  }
  return claims;
}

/** Ends come first, so that a reader sees a key become free before the next holder has it. */
export function changesBetween(before: Claims, after: Claims): KeyChange[] {
  const changes: KeyChange[] = [];
  for (const [name, { key, claim }] of before) {
    if (!after.has(name)) changes.push({ event: "ended", key, claim });
  }
  for (const [name, { key, claim }] of after) {
    const former = before.get(name)?.claim;
    if (former?.state === claim.state && former.fence === claim.fence) continue;
    changes.push({ event: claim.state, key, claim });
  }
  return changes;
}
