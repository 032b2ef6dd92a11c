/** Compare-and-swap stores in the simulation: every client has a store of its own, and they share a database. */
import type { ClaimStatus, KeyStatus, Store } from "holdfast";
import { StoreUnavailableError } from "holdfast";
import {
  type CasDriver,
  type CasStoreOptions,
  casStore,
  type OnWake,
  type SwapBatch,
  type SwapReply,
} from "holdfast/cas";
import { MapDatabase, mapDriver } from "../../examples/driver/map-driver.ts";
import { decodeRecord } from "../../src/record/format.ts";
import { describe } from "../../src/record/view.ts";
import { type Backend, MAX_WAITERS } from "./server.ts";
import type { Machine, World } from "./world.ts";

/** More than the longest flight and the largest step of the server's clock together. */
const KEEP_IDLE_MS = 2_500;
const MAX_STEP_MS = 1_200;

export interface CasBackend extends Backend {
  /** The store of one client's process. */
  storeOf(client: Machine): Store;
}

/** The options that all processes of a history share. */
export function sharedOptions({ random }: World, requestTimeoutMs: number, clockDrift: number) {
  return {
    maxWaiters: MAX_WAITERS,
    clockDrift,
    requestTimeoutMs,
    giveUpMs: 500,
    keepIdleMs: KEEP_IDLE_MS,
    maxConcurrentRequests: random.pick([1, 4]),
    cachedKeys: random.pick([1, 100]),
    minPollMs: 10,
    maxPollMs: 40,
    random: () => random.next(),
  } satisfies CasStoreOptions;
}

/** Loses nothing at a restart, but may come back with a clock that is behind. */
export function casBackend(world: World, server: Machine, drift: number): CasBackend {
  const { random } = world;
  let stepMs = 0;
  const nowMs = () => server.clock.wallMs() + stepMs;
  const database = new MapDatabase(nowMs);
  const near: CasDriver = mapDriver(database);
  const pushes = random.chance(0.5);
  const requestTimeoutMs = random.pick([60, 200, 1_000]);
  const options = sharedOptions(world, requestTimeoutMs, drift);
  const open = (driver: CasDriver, machine: Machine) =>
    casStore(driver, { ...options, clock: machine.clock });

  return {
    name: `cas (${pushes ? "pushes" : "polls"}, timeouts of ${requestTimeoutMs} ms)`,
    store: open(near, server),
    storeOf: (client) => open(distantDriver(world, client, server, near, pushes), client),
    onGrant: () => () => {},
    all: async () => [...database.rows].map(([key, row]) => show(key, row, nowMs())),
    restart() {
      if (random.chance(0.5)) stepMs -= random.between(0, (MAX_STEP_MS + stepMs) / 2);
    },
  };
}

const statuses = new WeakMap<object, KeyStatus>();

/** All claims that the record has. Those whose time is up are there until somebody drops them, and may be renewed. */
function show(key: string, row: { readonly text: string }, nowMs: number): KeyStatus {
  // A row is never changed, only replaced, and is looked at after every event.
  const status = statuses.get(row) ?? statusOf(key, row.text);
  statuses.set(row, status);
  const left = (claim: ClaimStatus) => ({ ...claim, expiresInMs: claim.expiresInMs - nowMs });
  return { ...status, held: status.held.map(left), waiting: status.waiting.map(left) };
}

/** As in 1970. The token is shown as the info, of which there is none: one swap may remove a claim and add it anew. */
function statusOf(key: string, text: string): KeyStatus {
  const record = decodeRecord(text, key);
  const status = describe(record, key, 0, 1_000);
  const tokens = new Map([...record.held, ...record.queue].map((claim) => [claim.id, claim.token]));
  const named = (claim: ClaimStatus) => ({ ...claim, info: tokens.get(claim.id) ?? "" });
  return { ...status, held: status.held.map(named), waiting: status.waiting.map(named) };
}

/** The database as a client sees it: every request crosses the network and may never be answered. */
function distantDriver(
  world: World,
  client: Machine,
  server: Machine,
  near: CasDriver,
  pushes: boolean,
): CasDriver {
  function call<T>(what: () => string, serve: () => Promise<T>, show: (reply: T) => string): Promise<T> {
    return new Promise((resolve, reject) => {
      world.send(client, server, what, () => {
        serve().then((reply) => {
          const answered = () => `${what()} = ${show(reply)}`;
          world.send(server, client, answered, () => resolve(reply));
        }, reject);
      });
      if (world.random.chance(world.weather.reset)) {
        const broken = () => reject(new StoreUnavailableError("The connection broke."));
        world.in(world.random.between(1, 50), () => client.do(broken));
      }
    });
  }

  return {
    name: "simulated",
    durability: near.durability,
    checksTime: near.checksTime,
    read: (keys) =>
      call(
        () => `read ${keys.join(" ")}`,
        () => near.read(keys),
        ({ nowMs }) => `at ${nowMs.toFixed(0)}`,
      ),
    swap: (batch) =>
      call(
        () => `swap ${changes(batch)}`,
        () => near.swap(batch),
        results,
      ),
    list: (prefix, after, limit) =>
      call(
        () => "list",
        () => near.list(prefix, after, limit),
        () => "…",
      ),
    sweep: (limit) =>
      call(
        () => "sweep",
        async () => (await near.sweep?.(limit)) ?? 0,
        (removed) => `${removed}`,
      ),
    ...(pushes ? { listen } : {}),
  };

  async function listen(owner: string, onWake: OnWake): Promise<() => void> {
    const end = await near.listen?.(owner, (key, id, fence) =>
      world.send(
        server,
        client,
        () => `granted ${key} ${id}`,
        () => onWake(key, id, fence),
      ),
    );
    return () => end?.();
  }
}

function changes({ changes, earliestMs, latestMs }: SwapBatch): string {
  const told = changes.map(({ key, expected, text }) => `${key} ${expected} -> ${text ?? "same"}`);
  return `${told.join(", ")} from ${earliestMs} to ${latestMs}`;
}

function results({ nowMs, results }: SwapReply): string {
  return `${results.map(({ state }) => state).join(" ")} at ${nowMs.toFixed(0)}`;
}
