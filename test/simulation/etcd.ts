/** The etcd store in the simulation: the real driver over a simulated etcd, with leases that claims hang on. */
import type { ClaimStatus, KeyStatus } from "holdfast";
import { casStore } from "holdfast/cas";
import { decodeRecord } from "../../src/record/format.ts";
import type { RecordClaim } from "../../src/record/record.ts";
import { describe } from "../../src/record/view.ts";
import { EtcdDriver } from "../../src/stores/etcd/driver.ts";
import { Keys } from "../../src/stores/etcd/keys.ts";
import { type CasBackend, sharedOptions } from "./cas.ts";
import { type Carry, etcdClient } from "./etcd-client.ts";
import { EtcdCluster, type Met, nameOf, type Row } from "./etcd-cluster.ts";
import type { Machine, World } from "./world.ts";

export interface EtcdBackend extends CasBackend {
  readonly met: Met;
  elect(): void;
}

const PREFIX = "holdfast";

/** Keeps all that was written when it is restarted, with another leader. */
export function etcdBackend(world: World, server: Machine, drift: number): EtcdBackend {
  const { random } = world;
  const keys = new Keys(PREFIX);
  const records = nameOf(keys.record(""));
  const cluster = new EtcdCluster(world, server, nameOf(keys.leases));
  const breaks = new Set<() => void>();
  const processes: Machine[] = [];
  const requestTimeoutMs = random.pick([150, 400, 1_000]);
  const options = sharedOptions(world, requestTimeoutMs, drift);

  function open(process: Machine, carry: Carry) {
    const { clock } = process;
    const client = etcdClient({ world, server, cluster, breaks }, process, carry);
    const shared = {
      requestTimeoutMs,
      keepIdleMs: options.keepIdleMs,
      clockDrift: drift,
      clock,
      random: () => random.next(),
    };
    return casStore(new EtcdDriver({ client, prefix: PREFIX, maxTxnOps: 128, ...shared }), {
      ...options,
      clock,
    });
  }

  /** All claims that the record has. Each has the time that its etcd lease has left by the leader's clock. */
  function show(name: string, row: Row): KeyStatus {
    const { status, etcdLeases } = statusOf(
      Buffer.from(name.slice(records.length), "latin1").toString(),
      row,
    );
    const left = (claim: ClaimStatus) => {
      const etcdLease = keys.lease(etcdLeases.get(claim.id) ?? "");
      return { ...claim, expiresInMs: cluster.leftMs(nameOf(etcdLease)) ?? Number.NEGATIVE_INFINITY };
    };
    return { ...status, held: status.held.map(left), waiting: status.waiting.map(left) };
  }

  return {
    name: `etcd (flights of ${requestTimeoutMs} ms)`,
    store: open(server, (_from, _to, _what, arrive) => {
      arrive();
      return true;
    }),
    storeOf(process) {
      processes.push(process);
      return open(process, (...message) => world.send(...message));
    },
    onGrant: () => () => {},
    all: async () =>
      [...cluster.rows].filter(([name]) => name.startsWith(records)).map(([name, row]) => show(name, row)),
    restart() {
      cluster.elect(processes);
      for (const breakStream of [...breaks]) breakStream();
    },
    elect: () => cluster.elect(processes),
    met: cluster.met,
  };
}

interface Shown {
  readonly status: KeyStatus;
  readonly etcdLeases: ReadonlyMap<string, string>;
}

const shown = new WeakMap<Row, Shown>();

/**
 * What a row says. It is looked at after every event, and never changed. The token and the arrival are shown as the info, of
 * which there is none: one transaction may remove a claim and add it anew.
 */
function statusOf(key: string, row: Row): Shown {
  const known = shown.get(row);
  if (known !== undefined) return known;
  const record = decodeRecord(row.value.toString("utf8"), key);
  const status = describe(record, key, 0, 1_000);
  const byId = new Map([...record.held, ...record.queue].map((claim) => [claim.id, claim]));
  const named = (claim: ClaimStatus) => {
    const { token, arrival } = byId.get(claim.id) as RecordClaim;
    // What nobody has any more is kept for a former caller, and nobody is to notice it.
    return { ...claim, owner: token === "" ? "" : claim.owner, info: `${token} ${arrival}` };
  };
  const etcdLeases = new Map([...byId].map(([id, { etcdLease }]) => [id, etcdLease]));
  const made = {
    status: { ...status, held: status.held.map(named), waiting: status.waiting.map(named) },
    etcdLeases,
  };
  shown.set(row, made);
  return made;
}
