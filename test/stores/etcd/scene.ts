/** A process with a store over a simulated etcd, on a clock that the test owns. */
import { setImmediate } from "node:timers/promises";
import type { Store } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { decodeRecord } from "../../../src/record/format.ts";
import type { LockRecord } from "../../../src/record/record.ts";
import { type Carry, etcdClient } from "../../simulation/etcd-client.ts";
import { EtcdCluster } from "../../simulation/etcd-cluster.ts";
import { Random } from "../../simulation/random.ts";
import { Machine, World } from "../../simulation/world.ts";

const LEASES = "holdfast/a/";

export interface Scene {
  readonly store: Store;
  /** Makes a backup of the cluster, and returns what restores it. */
  backup(): () => void;
  /** The store of another process, which everything reaches at once, and what ends that process. */
  another(): { readonly store: Store; die(): void };
  /** Stops the world as soon as there is an answer, or an error. */
  soon<T>(asked: Promise<T>): Promise<T | Error>;
  pass(ms: number): Promise<void>;
  nowMs(): number;
  /** There is another leader, and the process goes on to show its signs of life to the former one. */
  elect(): void;
  recordOf(key: string): LockRecord | undefined;
  /** At which revision a record was last written. */
  revisionOf(key: string): string | undefined;
  /** For how long a etcd lease lives if nobody shows a sign of life any more. Default: the only one. */
  leftMs(etcdLease?: string): number | undefined;
}

/** How long a message takes, in milliseconds; Infinity: it is lost. */
export type Journey = (what: string, from: "process" | "server") => number;

export function createScene(journey: Journey, { keepIdleMs = 2_000 } = {}): Scene {
  // With tracing on, messages tell what is in them.
  const world = new World(new Random(1), true);
  const [server, process] = [new Machine(world, "server", 1, 0), new Machine(world, "process", 1, 0)];
  const cluster = new EtcdCluster(world, server, LEASES);
  const carry: Carry = (from, to, what, arrive) => {
    const tookMs = journey(what(), from === server ? "server" : "process");
    if (tookMs === Number.POSITIVE_INFINITY) return false;
    world.in(tookMs, () => to.do(arrive));
    return true;
  };
  const open = (machine: Machine, by: Carry) =>
    etcdStore(etcdClient({ world, server, cluster, breaks: new Set() }, machine, by), {
      clock: machine.clock,
      random: () => 0.5,
      requestTimeoutMs: 1_000,
      keepIdleMs,
    });
  return {
    store: open(process, carry),
    backup: () => cluster.backup(),
    another() {
      const machine = new Machine(world, "another", 1, 0);
      const atOnce: Carry = (_, to, __, arrive) => {
        world.in(0, () => to.do(arrive));
        return true;
      };
      return {
        store: open(machine, atOnce),
        die: () => {
          machine.dead = true;
        },
      };
    },
    async soon<T>(asked: Promise<T>) {
      let answer: T | Error | undefined;
      void asked.then(
        (given) => {
          answer = given;
        },
        (error: Error) => {
          answer = error;
        },
      );
      while (answer === undefined) {
        // What was asked for just now is sent once all promises have run.
        await setImmediate();
        if (answer === undefined) await world.run(world.nowMs + 1, async () => {});
      }
      return answer;
    },
    pass: (ms) => world.run(world.nowMs + ms, async () => {}),
    nowMs: () => world.nowMs,
    elect: () => cluster.elect([process], 60_000),
    recordOf(key) {
      const row = cluster.rows.get(`holdfast/r/${key}`);
      return row && decodeRecord(row.value.toString(), key);
    },
    revisionOf: (key) => cluster.rows.get(`holdfast/r/${key}`)?.mod_revision,
    leftMs: (etcdLease = "") =>
      cluster.leftMs([...cluster.rows.keys()].find((key) => key.startsWith(`${LEASES}${etcdLease}`)) ?? ""),
  };
}
