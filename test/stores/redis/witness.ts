/**
 * Tells by the clock of the server itself whether two ever held a lock at a time. A claim that a server confirms, by renewing or
 * releasing it, was held from its grant until it was asked at the earliest. So no other grant may lie in between.
 *
 * The servers of tests are on this machine, and have its clock. A fence is the time of its grant, in microseconds. This goes for one
 * server: one that is promoted without a release may confirm what another has been granted after.
 */
import type { ClaimRef, Store } from "holdfast";
import { expect } from "vitest";

interface Tenure {
  readonly fence: bigint;
  /** By the server. */
  readonly sinceMs: number;
  /** When the last call was sent that found it held. */
  untilMs: number;
}

export class Witness {
  readonly #key: string;
  /** By claim and fence, because a claim may be lost and granted again. */
  readonly #tenures = new Map<string, Tenure>();
  /** The latest fence of a claim. */
  readonly #fences = new Map<string, bigint>();

  constructor(key: string) {
    this.#key = key;
  }

  /** The same store, of which this learns what it answers about the key. */
  watch(store: Store): Store {
    return {
      name: store.name,
      durability: store.durability,
      counts: store.counts,
      acquire: async (request) => {
        const sentMs = Date.now();
        const answer = await store.acquire(request);
        if (answer.state === "held") this.#held(request, answer.fence, sentMs);
        return answer;
      },
      renew: async (refs) => {
        const sentMs = Date.now();
        const answers = await store.renew(refs);
        for (const [index, ref] of refs.entries()) {
          const answer = answers[index];
          if (answer?.state === "held") this.#held(ref, answer.fence, sentMs);
          // Granted again, it would be another tenure, of which nothing is known yet.
          if (answer?.state === "gone") this.#fences.delete(ref.id);
        }
        return answers;
      },
      release: async (refs) => {
        const sentMs = Date.now();
        const answers = await store.release(refs);
        for (const [index, { key, id }] of refs.entries()) {
          if (answers[index] === true && key === this.#key) this.#confirm(id, sentMs);
        }
        return answers;
      },
      look: (query) => store.look(query),
      onGrant: (owner, listener) =>
        store.onGrant(owner, (refs) => {
          for (const ref of refs) if (ref.fence !== undefined) this.#held(ref, ref.fence);
          listener(refs);
        }),
      close: () => store.close(),
    };
  }

  /** Grants while another was held, in words. */
  get overlaps(): readonly string[] {
    const tenures = [...this.#tenures.values()].sort((a, b) => (a.fence < b.fence ? -1 : 1));
    return tenures.flatMap((tenure, index) => {
      const next = tenures[index + 1];
      if (next === undefined || next.sinceMs >= tenure.untilMs) return [];
      const earlyMs = tenure.untilMs - next.sinceMs;
      return [`${next.fence} was granted ${earlyMs} ms before ${tenure.fence} was let go`];
    });
  }

  /** Fails when there were two at a time, and when there is nothing to judge by. */
  expectOneAtATime(): void {
    const proven = [...this.#tenures.values()].filter(({ sinceMs, untilMs }) => untilMs > sinceMs);
    expect(proven.length).toBeGreaterThan(5);
    expect(this.overlaps).toEqual([]);
  }

  #held({ key, id }: ClaimRef, fence: bigint, sentMs = 0): void {
    if (key !== this.#key) return;
    const sinceMs = Number(fence / 1_000n);
    const name = `${fence} ${id}`;
    this.#fences.set(id, fence);
    if (!this.#tenures.has(name)) this.#tenures.set(name, { fence, sinceMs, untilMs: sinceMs });
    this.#confirm(id, sentMs);
  }

  #confirm(id: string, sentMs: number): void {
    const tenure = this.#tenures.get(`${this.#fences.get(id)} ${id}`);
    if (tenure !== undefined) tenure.untilMs = Math.max(tenure.untilMs, sentMs);
  }
}
