/** What a session says first, and what its operations may and cost. */

import { type Operation, SESSION_VERSION, wireDurabilities } from "../protocol/index.ts";
import type { ClaimRef } from "../store/index.ts";
import { checkMay, type Principal, verbFor } from "./access.ts";
import type { SessionContext } from "./session-context.ts";

/** The answer to a client's hello. */
export function welcomeOf({ store, limits }: SessionContext) {
  const { name, durability, counts } = store.store;
  const { maxMessageBytes, maxOperations } = limits;
  return {
    version: SESSION_VERSION,
    store: name,
    durability: wireDurabilities[durability],
    counts,
    maxMessageBytes,
    maxOperations,
  };
}

/** How much an operation counts among those that are unanswered: what it makes the server keep grows with its references. */
export function sizeOf(operation: Operation): number {
  const { verb } = operation;
  return verb === "renew" || verb === "release" ? Math.ceil((operation.refs.length + 1) / 10) : 1;
}

export function checkRefs(refs: readonly ClaimRef[], principal: Principal): void {
  for (const ref of refs) checkMay(principal, verbFor(ref), ref.key, ref.id);
}
