/** etcd: the store, and the lock of the etcd3 package. */
import { Etcd3 } from "etcd3";
import type { Store } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { startEtcd } from "../../test/engines/etcd.ts";
import { watchedClient } from "../../test/stores/etcd/watched-client.ts";
import type { OpenContender } from "./contender.ts";

const TTL_S = 30;

export async function openEtcd(): Promise<OpenContender> {
  const server = await startEtcd();
  const clients: Etcd3[] = [];
  const stores: Store[] = [];
  let roundTrips = 0;
  const count = () => {
    roundTrips++;
    return undefined;
  };
  const connect = () => {
    const client = new Etcd3({ hosts: server.url });
    clients.push(client);
    return client;
  };
  const peerClient = connect();
  return {
    async newStore() {
      const store = etcdStore(watchedClient(connect(), count));
      stores.push(store);
      return store;
    },
    roundTrips: () => roundTrips,
    url: server.url.replace(/^http:/, "etcd:"),
    peers: {
      // It does not wait: a key that is taken is an error.
      "etcd3 lock": async (key) => {
        const lock = peerClient.lock(key).ttl(TTL_S);
        await lock.acquire();
        return () => lock.release();
      },
    },
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      for (const client of clients) client.close();
      await server.stop();
    },
  };
}
