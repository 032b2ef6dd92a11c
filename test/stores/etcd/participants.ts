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

/** Keeps away from a server for so long after three failures in a row. By itself, the client does so for five seconds. */
function resting(restMs: number): Policy {
  let [failures, untilMs] = [0, 0];
  return {
    ...plain,
    async execute(call, signal) {
      if (performance.now() < untilMs) throw new BrokenCircuitError("It rests.");
      try {
        const result = await plain.execute(call, signal);
        failures = 0;
        return result;
      } catch (error) {
        if (++failures >= 3) untilMs = performance.now() + restMs;
        throw error;
      }
    },
  };
}

/** The store knows that of the client by its name. */
class BrokenCircuitError extends Error {}

/** Where there are several hosts, the client's own way of finding one that answers is needed. */
export function connect(hosts: string | string[]): Etcd3 {
  return typeof hosts === "string"
    ? new Etcd3({ hosts, faultHandling: { global: plain, host: () => plain } })
    : new Etcd3({ hosts });
}

/** A client that repeats calls as it does by itself, and never keeps away from a server: for many tests that share it. */
export function connectSteadily(host: string): Etcd3 {
  return new Etcd3({ hosts: host, faultHandling: { host: () => plain } });
}

/** A client of several hosts that keeps away from one that fails for half a second. */
export function connectBriefly(hosts: string[]): Etcd3 {
  return new Etcd3({ hosts, faultHandling: { host: () => resting(500) } });
}

export function participant(
  hosts: string | string[],
  options: EtcdStoreOptions = {},
  clock: Clock = systemClock,
): Participant {
  return participantWith(connect(hosts), options, clock);
}

export function participantWith(
  client: Etcd3,
  options: EtcdStoreOptions = {},
  clock: Clock = systemClock,
): Participant {
  return { store: etcdStore(client, { clock, ...options }), clock, end: () => client.close() };
}

/** Keeps a store from sweeping early, where a sweep that comes by chance would be counted, or make others wait for the next. */
export const late: EtcdStoreOptions = { random: () => 0.99 };

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
