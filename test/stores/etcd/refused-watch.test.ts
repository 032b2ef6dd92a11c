/** Logins of etcd end when they are not used for a while, and a watch that is begun with one is refused. */
import { setTimeout as sleep } from "node:timers/promises";
import { Etcd3 } from "etcd3";
import { createLocks } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { expect, onTestFinished, test } from "vitest";
import type { EtcdWatchResponse } from "../../../src/stores/etcd/client.ts";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, startEtcd } from "../../engines/etcd.ts";
import { heardClient } from "./heard-client.ts";
import { demandLogin, user } from "./users.ts";

test.skipIf(!canRunEtcd())(
  "etcd: a watch that is refused for a login that is over is made anew with another",
  { timeout: 60_000 },
  async () => {
    const server = await startEtcd(["--auth-token-ttl", "1"]);
    onTestFinished(() => server.stop());
    await demandLogin(server.url);
    const clients = [1, 2].map(() => new Etcd3({ hosts: [server.url], auth: user })) as [Etcd3, Etcd3];
    onTestFinished(() => {
      for (const client of clients) client.close();
    });
    const { client: heard, streams, told } = heardClient(clients[0]);
    const waiters = createLocks(etcdStore(heard), { onWarning: () => {} });
    const holders = createLocks(etcdStore(clients[1]), { onWarning: () => {} });
    onTestFinished(async () => {
      await Promise.all([waiters.close(), holders.close()]);
    });

    /** A heartbeat comes every 20 s, so that what is served before is served by an event. */
    async function handOver(): Promise<void> {
      const held = await holders.mutex("k", { ttlMs: 60_000 }).acquire({ waitMs: 10_000 });
      const waiting = waiters.mutex("k", { ttlMs: 60_000 }).acquire({ waitMs: 10_000 });
      await until("somebody waits", async () => (await holders.inspect("k")).waitingCount === 1);
      await held.release();
      await (await waiting).release();
    }

    await handOver();
    // Longer than a login lasts, in which the process asks for nothing.
    await sleep(3_000);
    streams[0]?.cancel();
    const isRefused = ({ created, canceled }: EtcdWatchResponse) => created && canceled;
    await until("etcd refuses", async () => told.some(isRefused));
    const refused = told.findIndex(isRefused);
    await until("it watches", async () => told.slice(refused).some(({ canceled }) => !canceled));
    await handOver();
    expect(streams.length).toBeGreaterThan(2);
  },
);
