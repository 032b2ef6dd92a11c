/**
 * A claim belongs to the principal that made it. Its id in the store begins with the name of the principal, such as
 * `billing:run-1`. So no call of another principal can name it, on any server. Callers send and see their ids without the name.
 */
import { createHash } from "node:crypto";
import { bounds, type ClaimRef, type ClaimStatus, invalid, type KeyStatus } from "../store/index.ts";
import { may, type Principal } from "./access.ts";

export interface Owner {
  /** The beginning of its ids in the store. Empty on a server without tokens, whose callers are one principal. */
  readonly prefix: string;
}

/** Ids of schedule notes begin with this. They have no owner: every principal that may acquire the key may use them. */
const OPEN = ":";

/** The longest name in ids, so that at least half of an id is left to callers. */
const MAX_NAME_BYTES = 63;

/** An encoded name has no colon, so no prefix begins with another one. */
export function prefixOf(name: string): string {
  return `${encodeURIComponent(name)}:`;
}

export function checkName(name: unknown): asserts name is string {
  if (typeof name !== "string" || name === "")
    throw invalid("A token has no name. Add one in the list of tokens.");
  if (/[\p{Cc}\p{Cs}]/u.test(name) || prefixOf(name).length > MAX_NAME_BYTES + 1) {
    throw invalid(
      `The name of a token must be well-formed text without control characters, of at most ${MAX_NAME_BYTES} bytes in URL ` +
        `encoding, not ${JSON.stringify(name.slice(0, 40))}. Choose a shorter one.`,
    );
  }
}

/** The reference or request with the id that the store knows. */
export function stored<R extends ClaimRef>(ref: R, { prefix }: Owner): R {
  if (prefix === "" || ref.id.startsWith(OPEN)) return ref;
  const id = prefix + ref.id;
  if (id.length * 3 > bounds.idBytes && Buffer.byteLength(id) > bounds.idBytes) {
    const most = bounds.idBytes - prefix.length;
    const bytes = Buffer.byteLength(ref.id);
    throw invalid(`id must be at most ${most} bytes of UTF-8 with this token, not ${bytes}.`, ref.key);
  }
  return { ...ref, id };
}

/** The reference with the id that the principal knows. Undefined if the claim belongs to another principal. */
export function ownRef<R extends ClaimRef>(ref: R, { prefix }: Owner): R | undefined {
  if (prefix === "" || ref.id.startsWith(OPEN)) return ref;
  return ref.id.startsWith(prefix) ? { ...ref, id: ref.id.slice(prefix.length) } : undefined;
}

/**
 * A key as the principal may see it: its own ids, and with `admin` the ids of others as the store has them. Other ids are
 * replaced by a hash, which tells claims apart and names none.
 */
export function shownTo(principal: Principal, owner: Owner, status: KeyStatus): KeyStatus {
  if (owner.prefix === "") return status;
  const seesAll = may(principal, "admin", status.key);
  const shown = (claim: ClaimStatus): ClaimStatus => {
    const own = ownRef({ key: status.key, id: claim.id }, owner);
    if (own !== undefined) return { ...claim, id: own.id };
    return seesAll ? claim : { ...claim, id: hashOf(claim.id) };
  };
  return { ...status, held: status.held.map(shown), waiting: status.waiting.map(shown) };
}

function hashOf(id: string): string {
  return `?${createHash("sha256").update(id).digest("base64url").slice(0, 16)}`;
}
