/** A process that reads its events so late that etcd has removed them meanwhile. */
import { Etcd3 } from "etcd3";
import { createLocks } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { onTestFinished, test } from "vitest";
import { Keys } from "../../../src/stores/etcd/keys.ts";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, startEtcd } from "../../engines/etcd.ts";
import { heardClient } from "./heard-client.ts";

test.skipIf(!canRunEtcd())(
  "etcd: a watch that was cancelled by a compaction is made anew, and pushes on",
  { timeout: 60_000 },
  async () => {
    const server = await startEtcd();
    onTestFinished(() => server.stop());
    const [slow, quick] = [new Etcd3({ hosts: [server.url] }), new Etcd3({ hosts: [server.url] })];
    onTestFinished(() => {
      for (const client of [slow, quick]) client.close();
    });
    const { client, streams, told } = heardClient(slow);
    // A heartbeat comes every 20 s, so that what is served before is served by an event.
    const options = { ttlMs: 60_000 };
    const store = etcdStore(client);
    let owner = "";
    const onGrant = store.onGrant.bind(store);
    store.onGrant = (name, listener) => {
      owner = name;
      return onGrant(name, listener);
    };
    const waiters = createLocks(store, { onWarning: () => {} });
    const holders = createLocks(etcdStore(quick), { onWarning: () => {} });
    onTestFinished(async () => {
      await Promise.all([waiters.close(), holders.close()]);
    });

    async function handOver(): Promise<void> {
      const held = await holders.mutex("k", options).acquire();
      const waiting = waiters.mutex("k", options).acquire({ waitMs: 15_000 });
      await until("somebody waits", async () => (await holders.inspect("k")).waitingCount === 1);
      await held.release();
      await (await waiting).release();
    }

    const isCancelled = async () => told.some(({ canceled }) => canceled);
    /** Keeps the reader from reading more than what is between etcd and itself can take, until what it lacks is removed. */
    async function fallBehind(): Promise<void> {
      const stream = streams.at(-1);
      stream?.pause();
      const junk = `${new Keys("holdfast").wakes(owner)}junk`;
      for (let nth = 0; nth < 40; nth++) await quick.put(junk).value("x".repeat(60_000));
      for (let round = 0; round < 30; round++) {
        await Promise.all(Array.from({ length: 100 }, (_, nth) => quick.put(junk).value(`${round}.${nth}`)));
      }
      const { header } = await quick.kv.range({ key: Buffer.from("none") });
      await quick.kv.compact({ revision: header.revision, physical: true });
      stream?.resume();
    }

    await handOver();
    // Where etcd has sent all of it before, it is tried again.
    await until("etcd cancels the watch", async () => {
      await fallBehind();
      return await until("it is noticed", isCancelled, 3_000).then(
        () => true,
        () => false,
      );
    });
    const cancelled = told.findIndex(({ canceled }) => canceled);
    await until("it is made anew", async () => told.slice(cancelled).some(({ created }) => created));
    await handOver();
  },
);
