/**
 * One request through several store objects at once, as after a retry through another server: one claim with one fence.
 *
 * Why fences grow: let X be held with fence F, and Y be granted later. A majority confirmed F while it held X, and a majority
 * grants Y. A server in both confirmed F before X left it, so its own fence for Y is above F.
 *
 * Why one request has one fence: let objects S and T hand out f and g. A server confirmed both, f first. From then on f was
 * proposed by S there, or joined. T could not replace it, and S had not failed, so g is f. Without that rule S counts A and B,
 * T counts B and C, and A, B and C end with two fences. A refused object asks all servers again and adopts the fence it finds.
 */
import { type ClaimRequest, HoldfastError, type RenewAnswer, type Store } from "holdfast";
import { expect, test } from "vitest";
import { Random } from "../../simulation/random.ts";
import { Cluster, type LinkPlan } from "./cluster.ts";

const SEEDS = 150;

class Race {
  readonly random: Random;
  readonly cluster: Cluster;
  readonly request: ClaimRequest;
  readonly stores: readonly Store[];
  faulty = true;

  constructor(seed: number, nodes: number, stores: number) {
    this.random = new Random(seed);
    // Clocks of nodes are up to a few messages apart, or far.
    const mostMs = this.random.pick([0, 3, 5_000]);
    this.cluster = new Cluster(
      nodes,
      Array.from({ length: nodes }, () => this.random.integer(-mostMs, mostMs)),
    );
    this.request = this.cluster.mutex("key", { wait: true, ttlMs: 60_000 });
    this.stores = Array.from({ length: stores }, () => this.cluster.store({}, this.#plan));
  }

  readonly #plan: LinkPlan = () => {
    if (this.faulty && this.random.chance(0.05)) return { lose: this.random.pick(["request", "reply"]) };
    return { beforeMs: this.random.between(0, 4), afterMs: this.random.between(0, 4) };
  };

  /** Asks until it is answered, as a client does. */
  async acquire(store: Store): Promise<bigint> {
    for (;;) {
      try {
        const answer = await store.acquire(this.request);
        if (answer.state === "held") return answer.fence;
        throw new Error(`The answer is ${answer.state}.`);
      } catch (error) {
        if (!(error instanceof HoldfastError) || !error.retryable) throw error;
        await this.#pause(this.random.between(1, 20));
      }
    }
  }

  async renew(store: Store): Promise<RenewAnswer | undefined> {
    return (await store.renew([this.request]))[0];
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.cluster.clock.setTimer(ms, resolve));
  }
}

test.each([
  [2, 2],
  [3, 2],
  [3, 3],
  [4, 2],
  [5, 2],
  [5, 3],
])("over %i nodes and through %i stores, it has one fence", async (nodes, stores) => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const race = new Race(seed, nodes, stores);
    const acquiring = Promise.all(race.stores.map((store) => race.acquire(store)));
    const fences = await race.cluster.until(acquiring);
    expect(new Set(fences).size, `fences with seed ${seed}: ${fences}`).toBe(1);
    race.faulty = false;
    const renewing = Promise.all(race.stores.map((store) => race.renew(store)));
    for (const answer of await race.cluster.until(renewing)) {
      expect(answer, `a renewal with seed ${seed}`).toMatchObject({ state: "held", fence: fences[0] });
    }
  }
});
