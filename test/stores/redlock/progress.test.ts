/**
 * Claims that hold a minority each must not wait for each other for ever.
 *
 * Why one of them gets a majority: the clients agree on the first server that answers, and an exclusive claim there leads. All
 * others release their servers within two `backoffMs` and a heartbeat, and stay out of the queues for their pause. The leader
 * stays queued. Pauses and its patience double, so they exceed the time that the queue takes to reach it. If clients disagree
 * about the first server, jitter ends the patience of one leader before the other.
 *
 * A late "held" answer counts as a push: otherwise a hold would stay unknown until the next heartbeat, with all others behind it.
 */
import type { Lease, Locks, QuorumMember } from "holdfast";
import { describe, expect, test } from "vitest";
import { Random } from "../../simulation/random.ts";
import { Cluster } from "./cluster.ts";

const ROUNDS = 4;
const SEEDS = 12;

describe("quorum: progress", () => {
  for (const nodes of [2, 3, 4, 5]) {
    for (const contenders of [2, 3, 4, 5]) {
      test(`${contenders} contenders over ${nodes} nodes that each hear them in another order are all served`, async () => {
        for (let seed = 1; seed <= SEEDS; seed++) {
          const cluster = new Cluster(nodes);
          const random = new Random(nodes * 1_000 + contenders * 100 + seed);
          const clients = Array.from({ length: contenders }, () =>
            cluster.client(
              cluster.store({ random: () => random.next() }, (_, { verb }) =>
                verb === "acquire" ? { beforeMs: random.between(0, 3) } : { beforeMs: random.between(0, 1) },
              ),
            ),
          );
          let holders = 0;
          const work = async (locks: Locks) => {
            for (let round = 0; round < ROUNDS; round++) {
              // Without a limit to the wait: nothing but progress ends this.
              const lease = await locks.mutex("key").acquire();
              expect(++holders).toBe(1);
              await pause(cluster, 5);
              holders--;
              await lease.release();
            }
          };
          const startMs = cluster.clock.monotonicMs();
          await cluster.until(Promise.all(clients.map(work)));
          const tookMs = cluster.clock.monotonicMs() - startMs;
          // Far below a ttl for each, which it would take if nothing but expiry ended a tie.
          expect(tookMs, `with seed ${seed}`).toBeLessThan(contenders * ROUNDS * 400);
        }
      });
    }
  }

  test("two that hold half each: the one with the first node goes on, at once", async () => {
    const cluster = new Cluster(2);
    const [one, two] = await tie(cluster, [0], [1]);
    const first = await cluster.until(one, 500);
    expect(first.held).toBe(true);
    await first.release();
    expect((await cluster.until(two, 500)).held).toBe(true);
  });

  test("a tie ends also where the two disagree about which node is the first", async () => {
    const cluster = new Cluster(4);
    // The second client never reaches node 0, and so takes node 1 for the first.
    const [one, two] = await tie(cluster, [0, 2], [1, 3], [0]);
    const first = await cluster.until(Promise.race([one, two]), 20_000);
    await first.release();
    const both = await cluster.until(Promise.all([one, two]), 20_000);
    expect(both.length).toBe(2);
  });

  test("a claim of higher priority gives way like any other", async () => {
    const cluster = new Cluster(2);
    const [one, two] = await tie(cluster, [0], [1], [], 10);
    await (await cluster.until(one, 1_000)).release();
    expect((await cluster.until(two, 1_000)).held).toBe(true);
  });
});

/** Two clients of which each was heard first by its own nodes. The second cannot reach some at all. */
async function tie(
  cluster: Cluster,
  first: readonly number[],
  second: readonly number[],
  cut: readonly number[] = [],
  priority = 0,
): Promise<[Promise<Lease>, Promise<Lease>]> {
  const late = (own: readonly number[], cutOff: readonly number[]) =>
    cluster.client(
      cluster.store({}, (node, { verb, count }) => {
        if (cutOff.includes(node)) return { lose: "request" };
        return verb === "acquire" && count === 1 && !own.includes(node) ? { beforeMs: 5 } : undefined;
      }),
    );
  const one = late(first, []).mutex("key").acquire();
  const two = late(second, cut).mutex("key").acquire({ priority });
  await cluster.clock.advance(4);
  for (const node of first) expect((await holderAt(cluster, node)).length).toBe(1);
  const [a, b] = [await holderAt(cluster, first[0] as number), await holderAt(cluster, second[0] as number)];
  expect(a).not.toEqual(b);
  return [one, two];
}

async function holderAt(cluster: Cluster, node: number): Promise<string[]> {
  const { keys } = await (cluster.members[node] as QuorumMember).look({ key: "key", maxClaims: 10 });
  return (keys[0]?.held ?? []).map(({ id }) => id);
}

function pause(cluster: Cluster, ms: number): Promise<void> {
  return new Promise((resolve) => void cluster.clock.setTimer(ms, resolve));
}
