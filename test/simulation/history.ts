/** One history: a world made from a seed, faults for a while, then calm, with all checks throughout. */
import { casBackend } from "./cas.ts";
import { Checks, isAlive, Violation } from "./checks.ts";
import { Client, type Plan } from "./client.ts";
import { type EtcdBackend, etcdBackend } from "./etcd.ts";
import type { Met } from "./etcd-cluster.ts";
import { Random } from "./random.ts";
import { type Backend, memoryBackend, remoteStore, writtenBackend } from "./server.ts";
import { calm, Machine, World } from "./world.ts";

export interface Outcome {
  readonly seed: number;
  readonly steps: number;
  readonly grants: number;
  /** The violation, if there was one. */
  readonly failure: string | undefined;
  /** The events of etcd leases, in histories over etcd. */
  readonly met: Met | undefined;
  /** The events, one a line; empty unless traced. */
  readonly log: readonly string[];
}

const FAULTS_UNTIL_MS = 8_000;
const MAX_TTL_MS = 1_500;
/** By then everybody who waits must have been served: some 40 jobs, each held for a few ttls at the worst. */
const END_MS = 400_000;
/** A swap store needs a look at the record, another attempt where somebody else was first, and polls where nobody pushes. */
const CAS_PATIENCE_MS = 250;
/** etcd needs more: up to half a second until a lease is ended that is over, and several requests for most of what is asked. */
const ETCD_PATIENCE_MS = 1_000;
/** How long after everybody was served nothing may be left of it: a claim that nobody knows of has the life of its etcd lease. */
const AFTERMATH_MS = 10_000;

/**
 * Which stores the histories are about: those that apply each call in one place, or compare-and-swap stores. Every third of
 * the latter is the etcd store, where claims hang on leases; "etcd" is those alone.
 */
export type StoreKind = "direct" | "cas" | "etcd";

export const storeKinds: readonly StoreKind[] = ["direct", "cas", "etcd"];

export async function runHistory(
  seed: number,
  tracing = false,
  kind: StoreKind = "direct",
): Promise<Outcome> {
  const random = new Random(seed);
  const world = new World(random, tracing);
  const drift = 0.02;
  const rate = () => 1 + random.between(-drift, drift) * 0.49;
  const server = new Machine(world, "server", rate(), random.between(-3_600_000, 3_600_000));
  const isEtcd = kind === "etcd" || (kind === "cas" && seed % 3 === 0);
  const etcd = isEtcd ? etcdBackend(world, server, drift) : undefined;
  const cas = etcd ?? (kind === "cas" ? casBackend(world, server, drift) : undefined);
  const backend = cas ?? (random.chance(0.5) ? memoryBackend(server) : writtenBackend(server));
  const sameTtl = random.chance(0.7);
  // A ttl that is as long as a lease of etcd leaves no room for a mistake.
  const allTtlsMs = [150, isEtcd ? 1_000 : 500, MAX_TTL_MS];
  const ttlsMs = sameTtl ? [random.pick(allTtlsMs)] : allTtlsMs;
  const plan: Plan = { ttlsMs, clockDrift: drift };
  world.say(() => `seed ${seed}: ${backend.name} store, ttls ${ttlsMs.join(" ")} ms`);

  const clients: Client[] = [];
  const start = (name: string) => {
    const machine = new Machine(world, name, rate(), random.between(-3_600_000, 3_600_000));
    const store = cas?.storeOf(machine) ?? remoteStore(world, machine, server, backend);
    const client = new Client(world, machine, store, plan);
    clients.push(client);
    const jobs = random.integer(1, 4);
    for (let worker = random.integer(1, 3); worker > 0; worker--) client.work(worker, jobs);
  };
  for (let number = random.integer(2, 4); number > 0; number--) start(`c${number}`);

  const checks = new Checks(world, clients);
  checks.lingering = cas !== undefined;
  const look = async () => {
    const broken = clients.find((client) => client.defect !== undefined);
    if (broken !== undefined) throw broken.defect;
    checks.look(await backend.all());
  };

  let failure: string | undefined;
  try {
    scheduleFaults(world, server, backend, clients, checks, start, etcd);
    await world.run(FAULTS_UNTIL_MS, look);
    calmDown(world, server, clients);
    checks.promptFromMs = world.nowMs + 4 * MAX_TTL_MS;
    // Where ttls differ, a long-lived waiter may learn of a short-lived holder's death only at its own heartbeat.
    checks.patienceMs = (sameTtl ? 0 : MAX_TTL_MS / 3) + patienceOf(cas, etcd);
    world.in(4 * MAX_TTL_MS, () => {
      for (const client of clients) {
        if (!client.machine.dead) for (const worker of [11, 12]) client.work(worker, 2);
      }
    });
    if (etcd === undefined) await world.run(END_MS, look);
    else await untilServed(world, clients, look);
    assertNothingLeft(clients, await backend.all());
  } catch (error) {
    failure = error instanceof Violation ? error.message : `${(error as Error).stack ?? error}`;
    world.say(() => `*** ${failure}`);
  }
  const grants = clients.reduce((sum, client) => sum + client.locks.stats().granted, 0);
  return { seed, steps: world.steps, grants, failure, met: etcd?.met, log: world.log };
}

function patienceOf(cas: Backend | undefined, etcd: EtcdBackend | undefined): number {
  if (etcd !== undefined) return ETCD_PATIENCE_MS;
  return cas === undefined ? 0 : CAS_PATIENCE_MS;
}

/** Leases show signs of life for ever, so these histories do not end by themselves. */
async function untilServed(
  world: World,
  clients: readonly Client[],
  look: () => Promise<void>,
): Promise<void> {
  const isBusy = ({ machine, busyWorkers }: Client) => !machine.dead && busyWorkers > 0;
  do await world.run(world.nowMs + AFTERMATH_MS, look);
  while (world.nowMs < END_MS && clients.some(isBusy));
  await world.run(world.nowMs + AFTERMATH_MS, look);
}

function scheduleFaults(
  world: World,
  server: Machine,
  backend: Backend,
  clients: readonly Client[],
  checks: Checks,
  start: (name: string) => void,
  etcd: EtcdBackend | undefined,
): void {
  const { random } = world;
  if (random.chance(0.9)) {
    const drop = random.pick([0, 0.05, 0.2]);
    const straggle = random.pick([0, 0.05, 0.2]);
    world.weather = { drop, straggle, repeat: random.pick([0, 0.1]), reset: random.pick([0, 0.1]) };
  }
  const faults = [
    () => pause(world, random.pick(clients).machine),
    () => pause(world, random.pick(clients).machine),
    () => pause(world, server),
    () => cutOff(world, random.pick([server, ...clients.map((client) => client.machine)])),
    () => kill(world, random.pick(clients).machine, () => start(`r${clients.length}`)),
    () => restart(world, server, backend, checks),
    () => forceRelease(world, backend, checks),
    ...(etcd === undefined ? [] : leaseFaults(world, etcd, clients)),
  ];
  for (let count = random.integer(0, 6); count > 0; count--) {
    world.in(random.between(0, FAULTS_UNTIL_MS), random.pick(faults));
  }
}

/** What leases are about: who is not heard of for long, while it goes on, and who ends them. */
function leaseFaults(world: World, etcd: EtcdBackend, clients: readonly Client[]): (() => void)[] {
  const silence = () => cutOff(world, world.random.pick(clients).machine);
  const elected = () => elect(world, etcd);
  return [silence, silence, silence, elected, elected];
}

function pause(world: World, machine: Machine): void {
  if (machine.dead || machine.paused) return;
  machine.paused = true;
  world.say(() => `--- ${machine.name} stops`);
  world.in(world.random.between(10, 3_000), () => {
    world.say(() => `--- ${machine.name} goes on`);
    machine.resume();
  });
}

function cutOff(world: World, machine: Machine): void {
  world.cutOff.add(machine);
  world.say(() => `--- ${machine.name} is cut off`);
  world.in(world.random.between(10, 3_000), () => {
    world.say(() => `--- ${machine.name} is back on the network`);
    world.cutOff.delete(machine);
  });
}

function kill(world: World, machine: Machine, replace: () => void): void {
  if (machine.dead) return;
  machine.dead = true;
  world.say(() => `--- ${machine.name} dies`);
  if (world.random.chance(0.5)) world.in(world.random.between(0, 1_000), replace);
}

function restart(world: World, server: Machine, backend: Backend, checks: Checks): void {
  if (server.dead) return;
  server.dead = true;
  world.say(() => "--- the server dies");
  world.in(world.random.between(1, 2_000), () => {
    void takeAwayAll(backend, checks);
    world.say(() => "--- the server is back");
    server.dead = false;
    backend.restart();
    checks.doubtArrivals();
  });
}

function elect(world: World, etcd: EtcdBackend): void {
  world.say(() => "--- another leader is elected");
  etcd.elect();
}

/** A store in memory forgets who holds what. Its fences must grow all the same. */
async function takeAwayAll(backend: Backend, checks: Checks): Promise<void> {
  if (backend.name !== "memory") return;
  for (const status of await backend.all()) {
    for (const claim of [...status.held, ...status.waiting]) checks.takeAway(status.key, claim.id);
  }
}

function forceRelease(world: World, backend: Backend, checks: Checks): void {
  void backend.all().then((keys) => {
    if (keys.length === 0) return;
    const { key, held, waiting } = world.random.pick(keys);
    const claims = [...held, ...waiting];
    if (claims.length === 0) return;
    const { id } = world.random.pick(claims);
    world.say(() => `--- ${key} ${id} is released by force`);
    checks.takeAway(key, id);
    return backend.store.release([{ key, id }]);
  });
}

function calmDown(world: World, server: Machine, clients: readonly Client[]): void {
  world.say(() => "--- the weather clears up");
  world.weather = calm;
  world.cutOff.clear();
  server.dead = false;
  for (const machine of [server, ...clients.map((client) => client.machine)]) machine.resume();
}

function assertNothingLeft(clients: readonly Client[], keys: Awaited<ReturnType<Backend["all"]>>): void {
  for (const { machine, busyWorkers, locks } of clients) {
    if (machine.dead) continue;
    if (busyWorkers > 0) throw new Violation(`${busyWorkers} workers of ${machine.name} were never served`);
    const { held, waiting } = locks.stats();
    if (held + waiting > 0)
      throw new Violation(`${machine.name} still counts ${held} held and ${waiting} waiting`);
  }
  const left = keys.filter((status) => [...status.held, ...status.waiting].some(isAlive));
  if (left.length > 0)
    throw new Violation(`claims are left on ${left.map((status) => status.key).join(", ")}`);
}
