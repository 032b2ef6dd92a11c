/** What has changed between two looks at the keys. */
import type { ClaimView, KeyView } from "./claim-view.ts";

/** A change in JSON, as `holdfast watch --json` prints it. */
export interface KeyChange {
  /**
   * `waiting`: a claim has joined the queue. `held`: it holds the key, perhaps again with another fence. `ended`: it does not
   * any more, or has left the queue; whether it was given back, expired or was ended by force cannot be seen.
   */
  readonly event: "waiting" | "held" | "ended";
  readonly key: string;
  /** As last seen. */
  readonly claim: ClaimView;
}

type Claims = ReadonlyMap<string, { readonly key: string; readonly claim: ClaimView }>;

/** What is seen at one time, by key and id. */
export function claimsOf(views: Iterable<KeyView>): Claims {
  const claims = new Map<string, { key: string; claim: ClaimView }>();
  for (const { key, held, waiting } of views) {
    // Neither a key nor an id contains a control character.
    for (const claim of [...held, ...waiting]) claims.set(`${key}\n${claim.id}`, { key, claim });
  }
  return claims;
}

/** Ends first: whoever reads on sees a key come free before somebody else has it. */
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
