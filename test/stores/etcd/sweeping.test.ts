/** Old records are removed, and nobody waits for that. */
import { setImmediate } from "node:timers/promises";
import { etcdStore } from "holdfast/etcd";
import { expect, test } from "vitest";
import type { Connection } from "../../../src/stores/etcd/connection.ts";
import { Keys } from "../../../src/stores/etcd/keys.ts";
import { Sweeping } from "../../../src/stores/etcd/sweeping.ts";
import { type Carry, etcdClient } from "../../simulation/etcd-client.ts";
import { EtcdCluster } from "../../simulation/etcd-cluster.ts";
import { Random } from "../../simulation/random.ts";
import { Machine, World } from "../../simulation/world.ts";
import { attempt } from "../cas/scene.ts";

const RECORDS = 6_000;
/** A request takes one process a fifth of what it takes the other, so the sweeper is always ahead. */
const [NEAR_MS, FAR_MS] = [1, 5];

test("etcd: whoever makes records gets on while many others are swept", async () => {
  const world = new World(new Random(1), false);
  const server = new Machine(world, "server", 1, 0);
  const cluster = new EtcdCluster(world, server, "holdfast/a/");
  const open = (name: string, oneWayMs: number) => {
    const machine = new Machine(world, name, 1, 0);
    const carry: Carry = (_, to, __, arrive) => {
      world.in(oneWayMs, () => to.do(arrive));
      return true;
    };
    const client = etcdClient({ world, server, cluster, breaks: new Set() }, machine, carry);
    const options = { clock: machine.clock, random: () => 0.5, requestTimeoutMs: 1_000, keepIdleMs: 5_000 };
    return etcdStore(client, options);
  };
  /** Lets time pass until something has come about. */
  async function until(isSo: () => boolean): Promise<void> {
    while (!isSo()) {
      await setImmediate();
      await world.run(world.nowMs + 1, async () => {});
    }
  }
  const left = () => [...cluster.rows.keys()].filter((name) => name.startsWith("holdfast/r/old")).length;

  const [near, far] = [open("near", NEAR_MS), open("far", FAR_MS)];
  let made = 0;
  for (let nth = 0; nth < RECORDS; nth++) {
    const request = attempt(`old-${nth}`, "a");
    void near.acquire(request).then(async () => {
      await near.release([request]);
      made++;
    });
  }
  await until(() => made === RECORDS);

  /** Of each record that is made by whoever is far; the first one, which also gets a lease, is left out. */
  const tookMs: number[] = [];
  let sweptMs = 0;
  for (let nth = 0; left() > 0; nth++) {
    const sentMs = world.nowMs;
    let isDone = false;
    void far.acquire(attempt(`new-${nth}`, "a")).then(() => {
      isDone = true;
    });
    await until(() => isDone);
    if (nth > 0) tookMs.push(world.nowMs - sentMs);
    if (left() < RECORDS) sweptMs += world.nowMs - sentMs;
    await until(() => world.nowMs > sentMs + 50);
  }
  // The sweep takes a multiple of this, and refuses what was decided before it once at the most.
  expect(sweptMs).toBeGreaterThan(0);
  expect(Math.max(...tookMs)).toBeLessThan(10 * FAR_MS);
});

test("etcd: a store that is closed while it begins to sweep leaves no pause behind, in which nobody would", async () => {
  let granted = 0;
  const leaseGrant = async () => ({ ID: `${++granted}` });
  const answer = { response_range: { kvs: [] } };
  const connection = {
    keys: new Keys("holdfast"),
    client: { leaseClient: { leaseGrant } },
    call: (send: (options: object) => Promise<unknown>) => send({}),
    txn: async () => ({ succeeded: true, responses: [answer, answer] }),
  };
  const begin = () => {
    const options = { keepIdleMs: 5_000, random: () => 0.5, atOnce: 100 };
    const sweeping = new Sweeping(connection as unknown as Connection, options);
    return { sweeping, swept: sweeping.sweep() };
  };
  const { sweeping, swept } = begin();
  sweeping.close();
  expect(await swept).toBe(0);
  expect(granted).toBe(0);
  await begin().swept;
  expect(granted).toBe(1);
});
