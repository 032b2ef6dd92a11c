import type { ClaimRef, GrantListener, Timer, Unsubscribe } from "../../core/index.ts";
import type { Bids } from "./bids.ts";
import type { Nodes } from "./nodes.ts";

/**
 * Passes on what the nodes push. The grant of one node is worth little, so it waits a moment for those of the others,
 * and one heartbeat then finds a majority.
 */
export class Pushes {
  readonly #nodes: Nodes;
  readonly #bids: Bids;
  readonly #delayMs: number;
  readonly #open = new Set<Unsubscribe>();

  constructor(nodes: Nodes, bids: Bids, delayMs: number) {
    this.#nodes = nodes;
    this.#bids = bids;
    this.#delayMs = delayMs;
  }

  listen(owner: string, listener: GrantListener): Unsubscribe {
    const timers = new Set<Timer>();
    const subscriptions = this.#nodes.members.map((member, node) =>
      member.onGrant(owner, (refs) => {
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
      }),
    );
    const unsubscribe = () => {
      this.#open.delete(unsubscribe);
      for (const end of subscriptions) end();
      for (const timer of timers) timer.cancel();
      timers.clear();
    };
    this.#open.add(unsubscribe);
    return unsubscribe;
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
