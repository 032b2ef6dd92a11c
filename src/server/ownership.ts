/**
 * Who owns a claim: the principal that made it. The store keeps its claims under ids that begin with its name, such as `billing:run-1`.
 * So a call of another principal cannot name them, on any server over that store. Callers send and see their own ids without the name.
 */
import { createHash } from "node:crypto";
import {
  bounds,
  type ClaimRef,
  type ClaimStatus,
  type GrantRef,
  invalid,
  type KeyStatus,
} from "../store/index.ts";
import { may, type Principal } from "./access.ts";

/** The name of an owner in ids. */
export interface Owner {
  /** What its ids begin with in the store. Empty on a server without tokens, where all callers are one. */
  readonly prefix: string;
}

/** Ids that begin with this have no owner: every principal that may acquire the key may use them. Notes of schedules have such ids. */
const OPEN = ":";

/** The longest name in ids, so that at least half of an id is left to callers. */
const MAX_NAME_BYTES = 63;

/** What the ids of a principal begin with. No prefix begins with another one, since an encoded name has no colon. */
export function prefixOf(name: string): string {
  return `${encodeURIComponent(name)}:`;
}

export function checkName(name: unknown): asserts name is string {
  if (typeof name !== "string" || name === "")
    throw invalid("A token has no name. Add one in the list of tokens.");
  if (/[\p{Cc}\p{Cs}]/u.test(name) || prefixOf(name).length > MAX_NAME_BYTES + 1) {
    const shown = JSON.stringify(name.slice(0, 40));
    throw invalid(
      `The name of a token must be well-formed text without control characters, and at most ${MAX_NAME_BYTES} bytes when it is ` +
        `written as part of a URL, not ${shown}. Choose a shorter one.`,
    );
  }
}

/** The same claim or request, by the id that the store knows. */
export function stored<R extends ClaimRef>(ref: R, { prefix }: Owner): R {
  if (prefix === "" || ref.id.startsWith(OPEN)) return ref;
  const id = prefix + ref.id;
  if (id.length * 3 > bounds.idBytes && Buffer.byteLength(id) > bounds.idBytes) {
    const most = bounds.idBytes - prefix.length;
    throw invalid(
      `id must be at most ${most} bytes of UTF-8 with this token, not ${Buffer.byteLength(ref.id)}.`,
      ref.key,
    );
  }
  return { ...ref, id };
}

/** Whether the claim of a pushed grant may be shown to its listener, and how. */
export function heardBy(ref: GrantRef, { prefix }: Owner): GrantRef | undefined {
  if (prefix === "" || ref.id.startsWith(OPEN)) return ref;
  return ref.id.startsWith(prefix) ? { ...ref, id: ref.id.slice(prefix.length) } : undefined;
}

/**
 * What a principal may see of a key. It sees its own ids, and with `admin` those of others as the store has them. In place of the other ids
 * it sees a hash, which tells claims apart and is good for nothing else.
 */
export function shownTo(principal: Principal, { prefix }: Owner, status: KeyStatus): KeyStatus {
  const seesAll = may(principal, "admin", status.key);
  if (prefix === "" && seesAll) return status;
  const shown = (claim: ClaimStatus): ClaimStatus => {
    if (claim.id.startsWith(OPEN)) return claim;
    if (prefix !== "" && claim.id.startsWith(prefix)) return { ...claim, id: claim.id.slice(prefix.length) };
    return seesAll ? claim : { ...claim, id: hashOf(claim.id) };
  };
  return { ...status, held: status.held.map(shown), waiting: status.waiting.map(shown) };
}

function hashOf(id: string): string {
  return `?${createHash("sha256").update(id).digest("base64url").slice(0, 16)}`;
}
