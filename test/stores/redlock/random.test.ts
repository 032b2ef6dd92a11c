/**
 * Random histories: several clients of one lock over memory nodes, with messages lost, late and repeated, nodes cut off, and
 * nodes that come back empty. What clients believe is compared all the time.
 */
import { HoldfastError, type Lease, type Locks } from "holdfast";
import { expect, test } from "vitest";
import { Random } from "../../simulation/random.ts";
import { Cluster, type LinkPlan } from "./cluster.ts";

const TTL_MS = 600;
const FAULTS_MS = 6_000;
const CALM_MS = 30_000;
/** How many leases each client must get once the faults have stopped. */
const ROUNDS = 5;

interface Holding {
  readonly lease: Lease;
  readonly shared: boolean;
}

class History {
  readonly random: Random;
  readonly cluster: Cluster;
  readonly held = new Set<Holding>();
  readonly served: number[] = [];
  /** Per client: which nodes it cannot reach. */
  readonly cuts: Set<number>[] = [];
  faulty = true;
  ended = false;
  lastExclusive = 0n;
  grants = 0;
  /** When each node that is down comes back, and whether it has lost everything by then. */
  readonly outages = new Map<number, { readonly untilMs: number; readonly empty: boolean }>();
  readonly violations: string[] = [];

  constructor(seed: number, nodes: number) {
    this.random = new Random(seed);
    // A node that forgets its fences falls back on its clock, so those that do have clocks that agree.
    const skewed = seed % 2 === 1;
    const skews = Array.from({ length: nodes }, () => (skewed ? this.random.integer(-5_000, 5_000) : 0));
    this.cluster = new Cluster(nodes, skews);
  }

  plan(client: number): LinkPlan {
    const { random } = this;
    return (node, { verb }) => {
      if (this.cuts[client]?.has(node)) return { lose: "request", hang: true };
      if (!this.faulty) return { beforeMs: random.between(0, 2), afterMs: random.between(0, 2) };
      if (random.chance(0.03)) return { lose: random.pick(["request", "reply"]), hang: random.chance(0.5) };
      const fault = { beforeMs: random.between(0, 4), afterMs: random.between(0, 4) };
      if (random.chance(0.03)) return { ...fault, beforeMs: random.between(0, 2 * TTL_MS) };
      // A pushed grant that is repeated says nothing; any other message may come twice.
      if (verb !== "push" && random.chance(0.05))
        return { ...fault, repeatAfterMs: random.between(0, TTL_MS) };
      return fault;
    };
  }

  async work(locks: Locks, client: number): Promise<void> {
    const { random } = this;
    const lock = locks.rwLock("key", { ttlMs: TTL_MS });
    while (!this.ended) {
      const shared = random.chance(0.3);
      const side = shared ? lock.read : lock.write;
      const before = this.lastExclusive;
      try {
        const lease = random.chance(0.3) ? await side.tryAcquire() : await side.acquire({ waitMs: 5_000 });
        if (lease !== null) await this.use(lease, shared, client, before);
      } catch (error) {
        if (!(error instanceof HoldfastError)) throw error;
      }
      await this.pause(random.between(0, 30));
    }
  }

  async use(lease: Lease, shared: boolean, client: number, before: bigint): Promise<void> {
    const holding = { lease, shared };
    this.held.add(holding);
    this.grants++;
    if (lease.fence <= before) this.violations.push(`fence ${lease.fence} after ${before}`);
    if (!shared) {
      if (lease.fence <= this.lastExclusive) this.violations.push(`fence ${lease.fence} went back`);
      this.lastExclusive = lease.fence;
    }
    this.check();
    await this.pause(this.random.between(0, 1.5 * TTL_MS));
    if (lease.held && !this.faulty) this.served[client] = (this.served[client] ?? 0) + 1;
    this.held.delete(holding);
    await lease.release().catch(() => {});
  }

  check(): void {
    const believers = [...this.held].filter(({ lease }) => lease.held);
    if (believers.length > 1 && believers.some(({ shared }) => !shared)) {
      this.violations.push(`${believers.length} hold at ${this.cluster.clock.monotonicMs()}`);
    }
  }

  async pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => void this.cluster.clock.setTimer(ms, resolve));
  }

  /** Cuts links, and takes a minority of nodes down: longer than any lease lasts if they come back empty. */
  disturb(nowMs: number): void {
    const { random, cluster } = this;
    const minority = Math.ceil(cluster.members.length / 2) - 1;
    this.bringBack(nowMs);
    const node = random.integer(0, cluster.members.length - 1);
    if (random.chance(0.05) && cluster.down.size < minority && !cluster.down.has(node)) {
      cluster.down.add(node);
      this.outages.set(node, { untilMs: nowMs + TTL_MS * 1.1, empty: cluster.isLevel && random.chance(0.5) });
    }
    for (const cut of this.cuts) {
      if (random.chance(0.1)) cut.clear();
      if (random.chance(0.05)) cut.add(node);
    }
  }

  bringBack(nowMs: number): void {
    for (const [node, { untilMs, empty }] of this.outages) {
      if (untilMs > nowMs) continue;
      this.outages.delete(node);
      if (empty) this.cluster.empty(node);
      this.cluster.down.delete(node);
    }
  }

  async run(clients: number): Promise<void> {
    const working: Promise<void>[] = [];
    for (let client = 0; client < clients; client++) {
      this.cuts.push(new Set());
      this.served.push(0);
      const random = () => this.random.next();
      const store = this.cluster.store({ nodeTimeoutMs: 50, backoffMs: 10, random }, this.plan(client));
      working.push(this.work(this.cluster.client(store), client));
    }
    const { clock } = this.cluster;
    for (let ms = 0; ms < FAULTS_MS; ms += 5) {
      if (ms % 50 === 0) this.disturb(clock.monotonicMs());
      await this.step();
    }
    this.faulty = false;
    this.bringBack(Number.POSITIVE_INFINITY);
    for (const cut of this.cuts) cut.clear();
    for (let ms = 0; ms < CALM_MS && this.served.some((count) => count < ROUNDS); ms += 5) await this.step();
    this.ended = true;
    await this.cluster.until(Promise.all(working));
  }

  async step(): Promise<void> {
    await this.cluster.clock.advance(5);
    this.check();
  }
}

const seeds = Number(process.env["REDLOCK_SEEDS"] ?? 6);

for (const nodes of [1, 2, 3, 4, 5]) {
  test(`quorum: ${seeds} random histories over ${nodes} nodes`, { timeout: 60_000 * seeds }, async () => {
    for (let seed = 1; seed <= seeds; seed++) {
      const history = new History(seed * 100 + nodes, nodes);
      await history.run(2 + (seed % 4));
      const name = `seed ${seed}, served ${history.served}, ${history.grants} grants`;
      expect(history.violations, name).toEqual([]);
      expect(Math.min(...history.served), name).toBeGreaterThanOrEqual(ROUNDS);
    }
  });
}
