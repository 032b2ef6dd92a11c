/**
 * The waiting claims of this process.
 *
 * A grant that is pushed while no session is open is lost. Its waiter would learn of it at its next heartbeat, a third of a ttl
 * later. So a new session sends every waiter a push without a fence, and the waiter asks the server.
 */
import type { AcquireAnswer, ClaimRef, ClaimRequest, GrantRef, RenewAnswer } from "../../store/index.ts";

/** Beyond this number claims are forgotten, which only delays them to their next heartbeat. */
const MAX_CLAIMS = 100_000;

export class WaitingClaims {
  readonly #owners = new Map<string, string>();

  asked(request: ClaimRequest, answer: AcquireAnswer): void {
    if (answer.state === "waiting") this.#add(request, request.owner);
    else if (this.#owners.size > 0) this.#owners.delete(nameOf(request));
  }

  renewed(refs: readonly ClaimRef[], answers: readonly RenewAnswer[]): void {
    if (this.#owners.size === 0) return;
    refs.forEach((ref, index) => {
      const state = answers[index]?.state;
      if (state !== "waiting" && state !== "failed") this.#owners.delete(nameOf(ref));
    });
  }

  released(refs: readonly ClaimRef[]): void {
    if (this.#owners.size === 0) return;
    for (const ref of refs) this.#owners.delete(nameOf(ref));
  }

  /** The waiting claims by their owner. */
  byOwner(): Map<string, GrantRef[]> {
    const refs = new Map<string, GrantRef[]>();
    for (const [name, owner] of this.#owners) {
      const [id = "", key = ""] = name.split("\n");
      const own = refs.get(owner);
      if (own === undefined) refs.set(owner, [{ key, id }]);
      else own.push({ key, id });
    }
    return refs;
  }

  #add(ref: ClaimRef, owner: string): void {
    if (this.#owners.size >= MAX_CLAIMS) this.#owners.clear();
    this.#owners.set(nameOf(ref), owner);
  }
}

/** Unique, because neither part contains a line break. */
function nameOf(ref: ClaimRef): string {
  return `${ref.id}\n${ref.key}`;
}
