/** The checks of `holdfast doctor`. They use keys of their own, and remove them. */
import { randomUUID } from "node:crypto";
import { withTimeout } from "../../platform/index.ts";
import { type ClaimRequest, HoldfastError, type Store } from "../../store/index.ts";
import { type Check, fail, ok, warn } from "./check.ts";

export interface Subject {
  readonly store: Store;
  /** A second store over the same database, so that wake-ups cross it. */
  readonly other: Store;
  readonly prefix: string;
  readonly timeoutMs: number;
}

/** Claims of an interrupted examination end after this. */
const TTL_MS = 10_000;

/** Enough heartbeats for a 99th percentile, in bounded time. */
const SAMPLES = 200;
const SAMPLING_MS = 2_000;

/** A push that takes longer counts as missing. */
const PUSH_MS = 2_000;

/** Runs all checks in order. The first failure skips the rest, which would fail for the same reason. */
export async function examine(subject: Subject): Promise<readonly Check[]> {
  const checks: Check[] = [];
  for (const [name, check] of Object.entries(parts)) {
    const hasFailed = checks.some(({ verdict }) => verdict === "fail");
    const failed = (error: unknown) => failure(name, error, subject.store.name);
    const skipped: Check = { name, verdict: "skipped", found: "an earlier check failed" };
    checks.push(hasFailed ? skipped : await check(subject).catch(failed));
  }
  return checks;
}

const parts: Readonly<Record<string, (subject: Subject) => Promise<Check>>> = {
  reachable: reach,
  rights: useRights,
  clock: compareClocks,
  latency: measureLatency,
  fences: growFences,
  "wake-up": wakeUp,
  durability: judgeDurability,
};

async function reach({ store, prefix, timeoutMs }: Subject): Promise<Check> {
  const startMs = performance.now();
  await within(timeoutMs, store.look({ key: `${prefix}reach`, maxClaims: 0 }));
  return ok("reachable", `the ${store.name} store answered in ${ms(performance.now() - startMs)}`);
}

/** Uses every verb once, except look, which `reach` has used. */
async function useRights(subject: Subject): Promise<Check> {
  const { store, timeoutMs } = subject;
  const request = requestFor(subject);
  try {
    const { state } = await within(timeoutMs, store.acquire(request));
    if (state !== "held")
      return fail(
        "rights",
        `the store answered "${state}" for a free key`,
        "Report this defect of Holdfast.",
      );
    const [renewed] = await within(timeoutMs, store.renew([request]));
    if (renewed?.state !== "held")
      return fail(
        "rights",
        "the store did not renew a held lock",
        "Check that nothing sets the store's clock, and that no other client releases the key.",
      );
  } finally {
    await within(timeoutMs, store.release([request])).catch(() => {});
  }
  const { keys } = await within(timeoutMs, store.look({ key: request.key, maxClaims: 1 }));
  if ((keys[0]?.heldCount ?? 0) > 0)
    return fail("rights", "the store did not release a lock", "Check that no other client uses the key.");
  return ok("rights", "a lock can be acquired, renewed, released and inspected");
}

/** Compares the time of a grant with the middle of the request on this machine's clock. */
async function compareClocks(subject: Subject): Promise<Check> {
  const { store, timeoutMs } = subject;
  const request = requestFor(subject);
  const beforeMs = Date.now();
  const answer = await within(timeoutMs, store.acquire(request));
  const afterMs = Date.now();
  await within(timeoutMs, store.release([request]));
  if (answer.state !== "held")
    throw new HoldfastError("STORE_FAILURE", "The store did not grant a free key.");
  const offMs = answer.acquiredAtMs - (beforeMs + afterMs) / 2;
  const found = `the store's clock is ${ms(Math.abs(offMs))} ${offMs < 0 ? "behind" : "ahead of"} this machine's, give or take ${ms((afterMs - beforeMs) / 2)}`;
  if (Math.abs(offMs) < 1_000) return ok("clock", found);
  return warn(
    "clock",
    found,
    "Locks are not affected, because only the store's clock counts. Times in logs and listings differ. Run NTP on both machines.",
  );
}

/** Measures heartbeats, one after another. */
async function measureLatency(subject: Subject): Promise<Check> {
  const { store, timeoutMs } = subject;
  const request = requestFor(subject);
  const took: number[] = [];
  try {
    await within(timeoutMs, store.acquire(request));
    const endMs = performance.now() + SAMPLING_MS;
    while (took.length < SAMPLES && performance.now() < endMs) {
      const startMs = performance.now();
      await within(timeoutMs, store.renew([request]));
      took.push(performance.now() - startMs);
    }
  } finally {
    await within(timeoutMs, store.release([request])).catch(() => {});
  }
  took.sort((a, b) => a - b);
  const at = (fraction: number) => took[Math.min(took.length - 1, Math.floor(took.length * fraction))] ?? 0;
  const found = `p50 ${ms(at(0.5))}, p90 ${ms(at(0.9))}, p99 ${ms(at(0.99))} over ${took.length} heartbeats`;
  if (at(0.99) < 500) return ok("latency", found);
  return warn(
    "latency",
    found,
    "Use a ttl of at least thirty times the p99. Look for the cause in the network or the load of the store.",
  );
}

async function growFences(subject: Subject): Promise<Check> {
  const { store, timeoutMs, prefix } = subject;
  const key = `${prefix}${randomUUID()}`;
  const fences: bigint[] = [];
  for (let turn = 0; turn < 2; turn++) {
    const request = { ...requestFor(subject), key };
    const answer = await within(timeoutMs, store.acquire(request));
    await within(timeoutMs, store.release([request]));
    if (answer.state === "held") fences.push(answer.fence);
  }
  const [first = 0n, second = 0n] = fences;
  if (second > first)
    return ok("fences", `the second of two grants has the higher fence (${first}, ${second})`);
  return fail(
    "fences",
    `the second of two grants has no higher fence (${first}, ${second})`,
    "Report this defect of Holdfast.",
  );
}

/** A claim waits, the other store releases the holder, and the grant must be pushed. */
async function wakeUp(subject: Subject): Promise<Check> {
  const { store, other, timeoutMs, prefix } = subject;
  const key = `${prefix}${randomUUID()}`;
  const holder = { ...requestFor(subject), key };
  const waiter = { ...requestFor(subject), key, wait: true };
  let unsubscribe = () => {};
  const pushed = new Promise<number>((resolve) => {
    unsubscribe = store.onGrant(waiter.owner, () => resolve(performance.now()));
  });
  try {
    await within(timeoutMs, other.acquire(holder));
    const { state } = await within(timeoutMs, store.acquire(waiter));
    if (state !== "waiting")
      return fail(
        "wake-up",
        `the store answered "${state}" for a held key`,
        "Report this defect of Holdfast.",
      );
    const releasedMs = performance.now();
    await within(timeoutMs, other.release([holder]));
    const atMs = await within(PUSH_MS, pushed).catch(() => undefined);
    if (atMs !== undefined)
      return ok("wake-up", `a waiter learned of its grant within ${ms(atMs - releasedMs)}`);
    return warn(
      "wake-up",
      `a waiter did not learn of its grant within ${ms(PUSH_MS)}`,
      "Locks work, but waiters notice a grant only at a heartbeat, up to a third of their ttl later. Grant the rights to subscribe that the store's page in docs/stores lists.",
    );
  } finally {
    unsubscribe();
    await within(timeoutMs, store.release([holder, waiter])).catch(() => {});
  }
}

async function judgeDurability({ store }: Subject): Promise<Check> {
  const found = `fences and locks are ${lasting[store.durability]} ("${store.durability}")`;
  if (store.durability !== "ephemeral") return ok("durability", found);
  return warn(
    "durability",
    found,
    "After a crash of the store two processes may hold one lock. If that must not happen, use a store with a disk or a quorum.",
  );
}

const lasting = {
  ephemeral: "lost with the store's process or a failover",
  local: "on a disk, and survive a restart",
  quorum: "kept by a majority",
} as const;

function requestFor({ prefix }: Subject): ClaimRequest {
  const id = randomUUID();
  return {
    key: `${prefix}${id}`,
    id,
    token: randomUUID(),
    weight: 1,
    limit: 1,
    priority: 0,
    ttlMs: TTL_MS,
    wait: false,
    owner: `holdfast-doctor:${id}`,
    info: "holdfast doctor",
    application: "holdfast",
  };
}

/** A failed check, with advice for the kind of failure. */
export function failure(name: string, error: unknown, store: string): Check {
  const { code, message, cause } = HoldfastError.from(error);
  const why = cause instanceof Error && !message.includes(cause.message) ? ` ${cause.message}` : "";
  return fail(
    name,
    `${code}: ${message}${why}`,
    (store === "file" ? fileRemedies[code] : undefined) ??
      remedies[code] ??
      "docs/errors.md explains this code.",
  );
}

const remedies: Readonly<Record<string, string>> = {
  STORE_UNAVAILABLE:
    "Check that the store runs, that the address is right, and that no firewall blocks this machine.",
  UNAUTHORIZED:
    "Grant the rights that the store's page in docs/stores lists. For a token with a prefix, pass --prefix.",
  STORE_FAILURE: "The store answers, but not as expected. The message names the cause.",
  UNSUPPORTED: "Install the missing package, or use another store.",
  INVALID_ARGUMENT: "Correct the address.",
};

/** For the file store, which has no address and no firewall. */
const fileRemedies: Readonly<Record<string, string>> = {
  STORE_UNAVAILABLE: "Check the disk, and whether another process that uses the folder hangs.",
  UNAUTHORIZED: "Give this user the rights to read, write and create files in the folder.",
  STORE_FAILURE: "Check the path of the folder. The message names the cause.",
};

function within<T>(timeoutMs: number, work: Promise<T>): Promise<T> {
  return withTimeout(timeoutMs, work, () => {
    throw new HoldfastError("STORE_UNAVAILABLE", `The store did not answer within ${timeoutMs} ms.`);
  });
}

function ms(value: number): string {
  return value < 10 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`;
}
