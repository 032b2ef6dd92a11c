/** One simulated program: the real client code on a machine of its own, with workers that use locks in every way. */
import { createLocks, HoldfastError, type Lease, type LockOptions, type Locks, type Store } from "holdfast";
import { Violation } from "./checks.ts";
import type { Random } from "./random.ts";
import type { Machine, World } from "./world.ts";

/** The settings that all programs of a history share. */
export interface Plan {
  readonly ttlsMs: readonly number[];
  readonly clockDrift: number;
}

/** Failures that the weather can cause; anything else is a defect. */
const excused = new Set([
  "ACQUIRE_TIMEOUT",
  "STORE_UNAVAILABLE",
  "LEASE_LOST",
  "NOT_HELD",
  "QUEUE_FULL",
  "CLOSED",
]);

const cancelled = new Error("cancelled");

export class Client {
  readonly machine: Machine;
  readonly locks: Locks;
  readonly leases = new Set<Lease>();
  busyWorkers = 0;
  openGroups = 0;
  /** The defect that a worker met, if any. */
  defect: unknown;
  readonly #world: World;
  readonly #plan: Plan;

  constructor(world: World, machine: Machine, store: Store, plan: Plan) {
    this.#world = world;
    this.machine = machine;
    this.#plan = plan;
    this.locks = createLocks(store, {
      clock: machine.clock,
      clockDrift: plan.clockDrift,
      requestTimeoutMs: 600,
      application: machine.name,
      onWarning: () => {},
    });
  }

  get owner(): string {
    return this.locks.owner;
  }

  work(worker: number, jobs: number): void {
    this.busyWorkers++;
    this.#work(worker, jobs).then(
      () => this.busyWorkers--,
      (error: unknown) => {
        this.defect = error;
      },
    );
  }

  async #work(worker: number, jobs: number): Promise<void> {
    const { random } = this.#world;
    for (let job = 0; job < jobs; job++) {
      await this.machine.sleep(random.between(0, 400));
      const name = `${this.machine.name}.${worker}.${job}`;
      try {
        await this.#job(name, random);
      } catch (error) {
        const code = error instanceof HoldfastError ? error.code : undefined;
        if (error !== cancelled && !excused.has(code ?? "")) throw error;
        this.#world.say(() => `${name} ${code ?? "cancelled"}`);
      }
    }
  }

  async #job(name: string, random: Random): Promise<void> {
    if (random.chance(0.1)) {
      this.openGroups++;
      await this.#groupJob(name, random).finally(() => this.openGroups--);
      return;
    }
    const lease = await this.#acquire(name, random);
    if (lease === null) {
      this.#world.say(() => `${name} not acquired`);
      return;
    }
    this.#world.say(() => `${name} has ${lease.key} ${lease.id} fence ${lease.fence}`);
    if (lease.signal.aborted !== !lease.held) throw new Violation(`${name}: signal and held disagree`);
    this.leases.add(lease);
    const ttlMs = random.pick(this.#plan.ttlsMs);
    await this.machine.sleep(random.chance(0.2) ? random.between(0, 3 * ttlMs) : random.between(0, 60));
    if (random.chance(0.1)) await lease.extend(2 * ttlMs).catch(() => {});
    if (random.chance(0.1)) await this.machine.sleep(random.between(0, ttlMs));
    const released = await lease.release();
    this.#world.say(() => `${name} released: ${released}`);
    if (lease.held) throw new Violation(`${name} still believes in what it released`);
    this.leases.delete(lease);
  }

  /** Several locks at once, one of them shared. */
  async #groupJob(name: string, random: Random): Promise<void> {
    const options = { ttlMs: random.pick(this.#plan.ttlsMs) };
    const document = this.locks.rwLock("doc", options);
    const group = this.locks.all([
      this.locks.semaphore("gpu", 3, options),
      random.chance(0.5) ? document.read : document.write,
      this.locks.mutex("mutex", options),
    ]);
    const waitMs = random.pick([300, 3_000, Number.POSITIVE_INFINITY]);
    await group.run(
      async ({ leases, signal }) => {
        this.#world.say(() => `${name} has ${leases.map((lease) => `${lease.key} ${lease.id}`).join(", ")}`);
        for (const lease of leases) this.leases.add(lease);
        await this.machine.sleep(random.between(0, 60));
        if (signal.aborted !== leases.some((lease) => !lease.held)) {
          throw new Violation(`${name}: the signal of the group and its leases disagree`);
        }
      },
      { waitMs, ...this.#cancelling(random) },
    );
  }

  #acquire(name: string, random: Random): Promise<Lease | null> {
    const options: LockOptions = {
      ttlMs: random.pick(this.#plan.ttlsMs),
      renew: !random.chance(0.1),
      reacquire: random.chance(0.1),
      ...(random.chance(0.1) ? { maxHoldMs: random.between(20, 1_000) } : {}),
    };
    const priority = random.chance(0.2) ? random.integer(1, 2) : 0;
    const id = random.chance(0.3) ? { id: name } : {};
    const call = { priority, ...id, ...this.#cancelling(random) };
    const lock = random.pick([
      () => this.locks.mutex("mutex", options),
      () => this.locks.rwLock("doc", options).read,
      () => this.locks.rwLock("doc", options).read,
      () => this.locks.rwLock("doc", options).write,
      () => this.locks.semaphore("gpu", 3, options),
    ])();
    const permits = lock.key === "gpu" ? { permits: random.integer(1, 3) } : {};
    if (random.chance(0.2)) return lock.tryAcquire({ ...call, ...permits });
    const waitMs = random.pick([0, 20, 300, 3_000, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]);
    return this.#acquireWithRetry(() => lock.acquire({ ...call, ...permits, waitMs }), "id" in id, random);
  }

  /** A caller that chose an id may ask again with it, whatever became of the first time. */
  async #acquireWithRetry(ask: () => Promise<Lease>, again: boolean, random: Random): Promise<Lease> {
    try {
      return await ask();
    } catch (error) {
      if (!again || error === cancelled || random.chance(0.3)) throw error;
      return ask();
    }
  }

  #cancelling(random: Random): { signal?: AbortSignal } {
    if (!random.chance(0.15)) return {};
    const controller = new AbortController();
    this.machine.clock.setTimer(random.between(0, 500), () => controller.abort(cancelled));
    return { signal: controller.signal };
  }
}
