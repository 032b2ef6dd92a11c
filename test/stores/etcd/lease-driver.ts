/** A map database without a clock: claims hang on etcd leases, which end when a test says so. */
import type { Clock } from "holdfast";
import type { CasDriver, Change, ChangeResult } from "holdfast/cas";
import { MapDatabase, mapDriver } from "../../../examples/driver/map-driver.ts";
import { ClaimLifetimes, type LeaseRegistry } from "../../../src/stores/etcd/claim-lifetimes.ts";

export class LeaseDatabase extends MapDatabase {
  readonly alive = new Set<string>();
  readonly endings: ((etcdLease: string) => void)[] = [];
  /** How often a etcd lease has shown a sign of life. */
  signs = 0;
  /** How often a change was not made because of what it took for granted of etcd leases. */
  refusals = 0;

  /** The process is dead, or has not been heard of for too long. */
  end(etcdLease: string): void {
    this.alive.delete(etcdLease);
    for (const tell of this.endings) tell(etcdLease);
  }

  /** The same, and nobody hears of it but by a change. */
  endUnnoticed(etcdLease: string): void {
    this.alive.delete(etcdLease);
  }
}

export interface LeaseDriver extends CasDriver {
  readonly lifetimes: ClaimLifetimes;
  readonly registry: LeaseRegistry;
  /** For how long the etcd leases are proven to live from each swap on. Default: their whole life. */
  provenForMs: number;
}

/** What a process is called, its etcd leases are called after. */
export function leaseDriver(database: LeaseDatabase, clock: Clock, name: string): LeaseDriver {
  const near = mapDriver(database);
  const own = new Set<string>();
  const ended = new Set<string>();
  const listeners: ((etcdLease: string | undefined) => void)[] = [];
  let lives = 0;
  let shownMs = clock.monotonicMs();

  const lifeMs = (etcdLease: string) => Number(etcdLease.split("/")[1]);
  const learn = (etcdLease: string) => {
    // What has ended never comes back, so the next one has another name.
    if (own.delete(etcdLease)) lives++;
    ended.add(etcdLease);
    for (const listener of listeners) listener(etcdLease);
  };
  database.endings.push(learn);

  const registry: LeaseRegistry = {
    ready: () => undefined,
    forLife(ms) {
      const etcdLease = `${name}${lives === 0 ? "" : `.${lives}`}/${Math.ceil(ms / 1_000) * 1_000}`;
      if (!own.has(etcdLease)) database.alive.add(etcdLease);
      own.add(etcdLease);
      return etcdLease;
    },
    isOwn: (etcdLease) => own.has(etcdLease),
    hasEnded: (etcdLease) => ended.has(etcdLease),
    lifeMs,
    provenUntilMs: (etcdLease) =>
      own.has(etcdLease)
        ? shownMs + Math.min(lifeMs(etcdLease), driver.provenForMs)
        : Number.NEGATIVE_INFINITY,
    async check(names) {
      for (const etcdLease of names) if (!database.alive.has(etcdLease)) learn(etcdLease);
    },
    stamp: () => database.versions << 20n,
    onEnd: (listener) => void listeners.push(listener),
  };

  function refusal({ key, leases: assumed }: Change): ChangeResult | undefined {
    if (assumed === undefined) return undefined;
    const lost = assumed.own.filter((etcdLease) => !database.alive.has(etcdLease));
    for (const etcdLease of lost) learn(etcdLease);
    if (lost.length > 0) return { state: "untimely" };
    const gone = assumed.alive.filter((etcdLease) => !database.alive.has(etcdLease));
    for (const etcdLease of gone) learn(etcdLease);
    const revived = assumed.ended.some((etcdLease) => database.alive.has(etcdLease));
    return gone.length > 0 || revived ? { state: "conflict", current: database.rows.get(key) } : undefined;
  }

  const driver: LeaseDriver = {
    ...near,
    checksTime: false,
    lifetimes: new ClaimLifetimes(registry, clock),
    registry,
    provenForMs: Number.POSITIVE_INFINITY,
    async swap({ changes, ...batch }) {
      if (changes.some((change) => change.leases?.fresh)) database.signs++;
      shownMs = clock.monotonicMs();
      const results: ChangeResult[] = [];
      for (const change of changes) {
        const refused = refusal(change);
        if (refused !== undefined) database.refusals++;
        const { results: made } = await near.swap({
          ...batch,
          changes: refused === undefined ? [change] : [],
          earliestMs: 0,
          latestMs: Number.MAX_SAFE_INTEGER,
        });
        results.push(refused ?? (made[0] as ChangeResult));
      }
      return { results, nowMs: clock.wallMs() };
    },
  };
  return driver;
}
