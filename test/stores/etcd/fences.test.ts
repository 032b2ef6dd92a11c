/** Fences grow, whatever is removed, forgotten, compacted or late; and what is removed is what nobody needs. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, systemClock } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { checkClient } from "../../../src/stores/etcd/client.ts";
import { Connection } from "../../../src/stores/etcd/connection.ts";
import { Keys } from "../../../src/stores/etcd/keys.ts";
import { Sweeping } from "../../../src/stores/etcd/sweeping.ts";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { connect, late, locksAt, participant } from "./participants.ts";
import { type OnCall, watchedClient } from "./watched-client.ts";

describe.skipIf(!canRunEtcd()).concurrent("etcd: fences", { timeout: 30_000 }, () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd(["--heartbeat-interval", "50", "--election-timeout", "500"]);
  }, 60_000);
  /** Side by side, tests have no end of their own to tidy up at. */
  const ends: (() => unknown)[] = [];
  afterAll(async () => {
    for (const end of ends.reverse()) await end();
    await server.stop();
  });

  function openClient() {
    const client = connect(server.url);
    ends.push(() => client.close());
    return client;
  }

  /** A store whose calls can be held back. It never sweeps: those of this file come one after the other, with a pause between. */
  function openStore(prefix: string, onCall: OnCall = () => undefined) {
    const store = etcdStore(watchedClient(openClient(), onCall), { prefix, ...late });
    ends.push(() => store.close());
    return store;
  }

  const openLocks = (prefix: string) => createLocks(openStore(prefix), { closeStore: false });

  /** Removes what a whole pause between sweeps has passed for, as processes do every few minutes. */
  async function sweep(prefix: string): Promise<number> {
    const client: unknown = openClient();
    checkClient(client);
    const keys = new Keys(prefix);
    const connection = new Connection(client, keys, systemClock, 5_000);
    const sweeping = new Sweeping(connection, { keepIdleMs: 1_000, random: Math.random, atOnce: 90 });
    const untilPauseIsOver = () =>
      until(
        "the pause is over",
        async () => (await client.kv.range({ key: keys.sweepPause })).kvs.length === 0,
      );
    await untilPauseIsOver();
    // The first one marks, the second one removes.
    await sweeping.sweep();
    expect(await sweeping.sweep()).toBe(0);
    await untilPauseIsOver();
    return await sweeping.sweep();
  }

  test("a record that is made anew has a higher fence than the one that was removed", async () => {
    const [prefix, key] = ["anew", "k"];
    const locks = openLocks(prefix);
    const before = await locks.mutex(key).run(({ fence }) => fence);
    expect(await sweep(prefix)).toBe(1);
    expect(await locks.inspect(key)).toMatchObject({ fence: 0n });
    expect(await locks.mutex(key).run(({ fence }) => fence)).toBeGreaterThan(before);
  });

  // P decides to make a record, with a fence from the revision that it knows. Before that arrives, Q makes one, with a higher
  // fence, and releases it, and it is removed. If P's were made now, its fence would be lower than Q's.
  test("a record that was about to be made when another one came and went is not made with an older fence", async () => {
    const [prefix, key] = ["late", "k"];
    let held: Promise<void> | undefined;
    let letGo: () => void = () => {};
    const slow = openStore(prefix, (method) => (method === "txn" ? held : undefined));
    const request = claimRequest("slow", { key, ttlMs: 30_000 });
    // So that it knows a revision, and has a lease.
    await slow.acquire({ ...request, key: "warm" });
    held = new Promise((resolve) => {
      letGo = resolve;
    });
    const acquiring = slow.acquire(request);
    const quick = openLocks(prefix);
    const others: bigint[] = [];
    for (let turn = 0; turn < 3; turn++) others.push(await quick.mutex(key).run(({ fence }) => fence));
    expect(await sweep(prefix)).toBe(1);
    held = undefined;
    letGo();
    const answer = await acquiring;
    expect(answer.state === "held" && answer.fence > others.at(-1)!).toBe(true);
  });

  // A fence stays below the revision of its record, whatever was granted before.
  test("many grants at once leave no room for an older fence", async () => {
    const [prefix, key] = ["many", "k"];
    const store = openStore(prefix);
    const readers = Array.from({ length: 500 }, (_, index) =>
      claimRequest(`${index}`, { key, limit: 1_000, ttlMs: 30_000 }),
    );
    const answers = await Promise.all(readers.map((reader) => store.acquire(reader)));
    const fences = answers.map((answer) => (answer.state === "held" ? answer.fence : 0n));
    const highest = [...fences].sort((a, b) => (a < b ? -1 : 1)).at(-1)!;
    expect(new Set(fences).size).toBe(500);
    await store.release(readers);
    expect(await sweep(prefix)).toBe(1);
    const again = await openStore(prefix).acquire(readers[0]!);
    expect(again.state === "held" && again.fence > highest).toBe(true);
  });

  test("a sweep leaves alone what is held, young or unreadable, and removes what dead processes have left", async () => {
    const prefix = "swept";
    const client = openClient();
    const locks = openLocks(prefix);
    const lease = await locks.mutex("held", { ttlMs: 60_000 }).acquire();
    await client.put(`${prefix}/r/unreadable`).value("?");
    const dying = participant(server.url, { prefix, ...late });
    await dying.store.acquire(claimRequest("dead", { key: "left", ttlMs: 1_000 }));
    await dying.store.close();
    await dying.end();
    await locks.mutex("idle").run(() => {});
    // Its lease ends by itself, some time after the store was closed.
    await until("its lease has ended", async () => (await locks.inspect("left")).heldCount === 0);
    expect(await sweep(prefix)).toBe(2);
    await locks.mutex("young").run(() => {});
    const left = await client.getAll().prefix(`${prefix}/r/`).keys();
    expect(left.sort()).toEqual(["held", "unreadable", "young"].map((name) => `${prefix}/r/${name}`));
    expect(await lease.release()).toBe(true);
  });

  test("a store removes an idle record by itself, without anything being asked of it, and leaves what is held", async () => {
    const prefix = "by itself";
    const client = openClient();
    const store = etcdStore(openClient(), { prefix, requestTimeoutMs: 999, keepIdleMs: 1_000 });
    ends.push(() => store.close());
    const held = claimRequest("held", { key: "held", ttlMs: 60_000 });
    const idle = claimRequest("idle", { key: "idle", ttlMs: 60_000 });
    for (const request of [held, idle]) await store.acquire(request);
    const records = () => client.getAll().prefix(`${prefix}/r/`).keys();
    await store.release([idle]);
    expect(await records()).toHaveLength(2);
    await until("the idle one is removed", async () => (await records()).length === 1);
    expect(await records()).toEqual([`${prefix}/r/held`]);
  });
});

describe.skipIf(!canRunEtcd())("etcd: fences after a restart", { timeout: 30_000 }, () => {
  test("grow on, with a history that was compacted, and for a record that was removed", async () => {
    const server = await startEtcd();
    onTestFinished(() => server.stop());
    const client = connect(server.url);
    const first = locksAt(server.url);
    const kept = await first.mutex("kept").run(({ fence }) => fence);
    const gone = await first.mutex("gone").run(({ fence }) => fence);
    await client.delete().key("holdfast/r/gone");
    const { header } = await client.kv.range({ key: Buffer.from("x") });
    await client.kv.compact({ revision: header.revision, physical: true });
    client.close();
    await server.kill();
    await server.restart();
    await sleep(100);
    const second = locksAt(server.url);
    expect(await second.mutex("kept").run(({ fence }) => fence)).toBeGreaterThan(kept);
    expect(await second.mutex("gone").run(({ fence }) => fence)).toBeGreaterThan(gone);
    // The first one has seen neither the restart nor the removal.
    expect(await first.mutex("gone").run(({ fence }) => fence)).toBeGreaterThan(gone);
  });
});
