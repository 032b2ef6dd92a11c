import type { Timer } from "../../platform/index.ts";
import type { ClaimRef, GrantListener, Unsubscribe } from "../../store/index.ts";
import type { Bids } from "./bids.ts";
import type { Nodes } from "./nodes.ts";

type Hear = (refs: readonly ClaimRef[], node: number) => void;

/**
 * Passes on what the nodes push. The grant of one node is worth little, so it waits a moment for those of the others,
 * and one heartbeat then finds a majority.
 */
export class Pushes {
  readonly #nodes: Nodes;
  readonly #bids: Bids;
  readonly #delayMs: number;
  readonly #open = new Set<Unsubscribe>();
  readonly #listeners = new Map<string, Hear>();

  constructor(nodes: Nodes, bids: Bids, delayMs: number) {
    this.#nodes = nodes;
    this.#bids = bids;
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
        const still = early.filter((ref) => this.#bids.named(ref)?.pushed.has(node) === true);
        if (still.length > 0) listener(still);
      });
      timers.add(timer);
    };
    const subscriptions = this.#nodes.members.map((member, node) =>
      // The fence of one node is not the one that the majority will agree upon.
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

  /** As if the node had pushed it. */
  tell(owner: string, refs: readonly ClaimRef[], node: number): void {
    this.#listeners.get(owner)?.(refs, node);
  }

  close(): void {
    for (const unsubscribe of this.#open) unsubscribe();
  }

  /** Whether the claim may be held by a majority now. One that was asked for elsewhere is not kept waiting. */
  #isReady(ref: ClaimRef, node: number): boolean {
    const bid = this.#bids.named(ref);
    if (bid === undefined) return true;
    bid.pushed.add(node);
    return new Set([...bid.pushed, ...bid.heldOn]).size >= this.#nodes.majority;
  }
}
