/** Clients of etcd and stores over them, as several processes have them, for tests that torment the servers. */
import { Etcd3, type IOptions } from "etcd3";
import { type Clock, createLocks, type Locks, systemClock } from "holdfast";
import { type EtcdStoreOptions, etcdStore } from "holdfast/etcd";
import { onTestFinished } from "vitest";
import type { Participant } from "../workers.ts";

type Policy = NonNullable<NonNullable<IOptions["faultHandling"]>["global"]>;

/** Neither repeats a call nor keeps away from a server. By itself, the client does both, for some seconds. */
const plain: Policy = {
  _altReturn: undefined as never,
  onSuccess: () => ({ dispose: () => {} }),
  onFailure: () => ({ dispose: () => {} }),
  execute: async (call, signal = new AbortController().signal) => call({ signal }),
};

/** Where there are several hosts, the client's own way of finding one that answers is needed. */
export function connect(hosts: string | string[]): Etcd3 {
  return typeof hosts === "string"
    ? new Etcd3({ hosts, faultHandling: { global: plain, host: () => plain } })
    : new Etcd3({ hosts });
}

export function participant(
  hosts: string | string[],
  options: EtcdStoreOptions = {},
  clock: Clock = systemClock,
): Participant {
  const client = connect(hosts);
  return { store: etcdStore(client, { clock, ...options }), clock, end: () => client.close() };
}

/** Locks over a store of its own, until the test is over. */
export function locksAt(hosts: string | string[], options: EtcdStoreOptions = {}): Locks {
  const { store, end } = participant(hosts, options);
  const locks = createLocks(store, { onWarning: () => {} });
  onTestFinished(async () => {
    await locks.close();
    await end();
  });
  return locks;
}
