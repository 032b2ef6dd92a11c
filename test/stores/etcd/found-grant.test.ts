/** Leases whose grant was not heard of, and that are asked for again: over a simulated etcd, on a clock that the test owns. */
import { type AcquireAnswer, HoldfastError, type Store } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { describe, expect, test } from "vitest";
import { type Carry, etcdClient } from "../../simulation/etcd-client.ts";
import { EtcdCluster } from "../../simulation/etcd-cluster.ts";
import { Random } from "../../simulation/random.ts";
import { Machine, World } from "../../simulation/world.ts";
import { attempt } from "../cas/scene.ts";

const KEEPERS = "holdfast/a/";

/** One process, the reply to whose first grant is lost. Requests of a kind may take longer than others. */
function createScene(slow: Readonly<Record<string, number>> = {}) {
  const world = new World(new Random(1), false);
  const [server, process] = [new Machine(world, "server", 1, 0), new Machine(world, "process", 1, 0)];
  const cluster = new EtcdCluster(world, server, KEEPERS);
  let isFirst = true;
  const carry: Carry = (from, to, what, arrive) => {
    if (from === server && what().startsWith("grant") && isFirst) {
      isFirst = false;
      return false;
    }
    world.in(from === server ? 1 : (slow[what()] ?? 1), () => to.do(arrive));
    return true;
  };
  const client = etcdClient({ world, server, cluster, breaks: new Set() }, process, carry);
  const store = etcdStore(client, { clock: process.clock, flightMs: 1_000, keepIdleMs: 2_000 });

  /** Asks, and stops the world at the answer. */
  async function acquire(ttlMs: number): Promise<AcquireAnswer | Error> {
    const asked = askFor(store, ttlMs);
    let answer: AcquireAnswer | Error | undefined;
    void asked.then((given) => {
      answer = given;
    });
    while (answer === undefined) await world.run(world.nowMs + 1, async () => {});
    return answer;
  }

  /** For how long the only keeper lives if nobody shows a sign of life any more. */
  const leftMs = () => cluster.leftMs([...cluster.rows.keys()].find((key) => key.startsWith(KEEPERS)) ?? "");
  return { acquire, leftMs };
}

function askFor(store: Store, ttlMs: number): Promise<AcquireAnswer | Error> {
  return store.acquire(attempt("k", "a", { ttlMs })).catch((error: Error) => error);
}

describe("etcd: a lease that is found again", () => {
  test("promises no more than what is left of it since it was granted", async () => {
    const { acquire, leftMs } = createScene();
    expect(await acquire(4_000)).toBeInstanceOf(HoldfastError);
    const answer = await acquire(4_000);
    expect(answer).toMatchObject({ state: "held" });
    // Granted 900 ms ago, and since then nobody has shown a sign of life.
    expect(leftMs()).toBeLessThan(3_200);
    expect((answer as { expiresInMs: number }).expiresInMs).toBeLessThanOrEqual(leftMs() ?? 0);
  });

  test("is an outage where it ends before it is looked at, and the next call has another", async () => {
    const { acquire } = createScene({ "time to live": 800 });
    expect(await acquire(1_000)).toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await acquire(1_000)).toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("has ended"),
    });
    expect(await acquire(1_000)).toMatchObject({ state: "held" });
  });
});
