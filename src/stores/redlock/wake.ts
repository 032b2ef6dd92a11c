import type { Timer } from "../../platform/index.ts";
import type { ClaimRef, GrantListener, Unsubscribe } from "../../store/index.ts";
import type { Nodes } from "./nodes.ts";
import type { QuorumClaims } from "./quorum-claim.ts";

type Hear = (refs: readonly ClaimRef[], node: number) => void;

/**
 * Passes on the grants that the nodes push. The grant of one node waits a moment for those of the others, so that one heartbeat finds a
 * majority.
 */
export class Wake {
  readonly #nodes: Nodes;
  readonly #claims: QuorumClaims;
  readonly #delayMs: number;
  readonly #open = new Set<Unsubscribe>();
  readonly #listeners = new Map<string, Hear>();

  constructor(nodes: Nodes, claims: QuorumClaims, delayMs: number) {
    this.#nodes = nodes;
    this.#claims = claims;
    this.#delayMs = delayMs;
  }

  listen(owner: string, listener: GrantListener): Unsubscribe {
    const timers = new Set<Timer>();
    const hear: Hear = (refs, node) => {
      const ready = refs.filter((ref) => this.#isReady(ref, node));
      if (ready.length > 0) listener(ready);
      const early = refs.filter((ref) => !ready.includes(ref));
      if (early.length === 0) return;
      const timer = this.#nodes.clock.setTimer(this.#delayMs, () => {
        timers.delete(timer);
        const still = early.filter((ref) => this.#claims.named(ref)?.pushed.has(node) === true);
        if (still.length > 0) listener(still);
      });
      timers.add(timer);
    };
    const subscriptions = this.#nodes.members.map((member, node) =>
      // Without the fence: the majority may agree on another.
      member.onGrant(owner, (refs) =>
        hear(
          refs.map(({ key, id }) => ({ key, id })),
          node,
        ),
      ),
    );
    const unsubscribe = () => {
      this.#open.delete(unsubscribe);
      if (this.#listeners.get(owner) === hear) this.#listeners.delete(owner);
      for (const end of subscriptions) end();
      for (const timer of timers) timer.cancel();
      timers.clear();
    };
    this.#open.add(unsubscribe);
    this.#listeners.set(owner, hear);
    return unsubscribe;
  }

  /** Handles a grant as if the node had pushed it. */
  tell(owner: string, refs: readonly ClaimRef[], node: number): void {
    this.#listeners.get(owner)?.(refs, node);
  }

  close(): void {
    for (const unsubscribe of this.#open) unsubscribe();
  }

  /** Whether a majority may hold the claim now. A claim of another instance is passed on at once. */
  #isReady(ref: ClaimRef, node: number): boolean {
    const claim = this.#claims.named(ref);
    if (claim === undefined) return true;
    claim.pushed.add(node);
    return new Set([...claim.pushed, ...claim.heldOn]).size >= this.#nodes.majority;
  }
}
