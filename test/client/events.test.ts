import { channel, subscribe, unsubscribe } from "node:diagnostics_channel";
import {
  createLocks,
  type EventHandlers,
  type EventKind,
  type HeartbeatThread,
  HoldfastError,
  type HoldfastEvents,
  memoryStore,
  observe,
} from "holdfast";
import { settled } from "holdfast/testing";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { observeScenes, Scene, TTL_MS } from "./scene.ts";

const kinds: readonly EventKind[] = [
  "acquire",
  "waiting",
  "granted",
  "contended",
  "timeout",
  "cancelled",
  "failed",
  "renewed",
  "renewal-failed",
  "extended",
  "lost",
  "released",
  "release-failed",
  "detached",
  "force-released",
  "store-unavailable",
  "store-available",
  "closed",
  "warning",
];

type Heard = { [Kind in EventKind]: { kind: Kind } & HoldfastEvents[Kind] }[EventKind];

let heard: Heard[] = [];
let stop = () => {};

beforeEach(() => {
  heard = [];
  const handlers = kinds.map((kind) => [kind, (event: object) => heard.push({ kind, ...event } as Heard)]);
  stop = observeScenes(Object.fromEntries(handlers) as EventHandlers);
});

afterEach(() => stop());

function heardKinds(): EventKind[] {
  return heard.map(({ kind }) => kind);
}

function last<Kind extends EventKind>(kind: Kind): HoldfastEvents[Kind] {
  const event = heard.findLast((candidate) => candidate.kind === kind);
  expect(event, `${kind} among ${heardKinds().join(", ")}`).toBeDefined();
  return event as unknown as HoldfastEvents[Kind];
}

test("events of other clients than this test's are not heard in it", async () => {
  const locks = createLocks(memoryStore());
  await (await locks.mutex("k").acquire()).release();
  await locks.forceRelease("k", "id");
  await locks.close();
  expect(heardKinds()).toEqual([]);
});

describe("events: asking", () => {
  test("a grant tells the fence and how long was waited", async () => {
    const scene = new Scene({ application: "billing" });
    scene.faults = ({ verb }) => (verb === "acquire" ? { afterMs: 40 } : undefined);
    const acquiring = scene.begin(
      scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire({ priority: 3, id: "job" }),
    );
    await scene.clock.advance(40);
    expect(heardKinds()).toEqual(["acquire", "granted"]);
    expect(last("acquire")).toMatchObject({ waitMs: Number.POSITIVE_INFINITY, again: false });
    expect(last("granted")).toMatchObject({ waitedMs: 40, fence: acquiring.value?.fence, again: false });
    expect(last("granted").claim).toEqual({
      key: "k",
      id: "job",
      store: "memory",
      owner: scene.locks.owner,
      application: "billing",
      weight: 1,
      limit: 1,
      priority: 3,
      ttlMs: TTL_MS,
      wait: true,
      askedMs: 1_000,
    });
  });

  test("all events of a claim carry the same object for it, and none the claim's token", async () => {
    const { locks } = new Scene();
    const lease = await locks.mutex("k").acquire();
    await lease.release();
    const claims = new Set(heard.map((event) => ("claim" in event ? event.claim : undefined)));
    expect(heardKinds()).toEqual(["acquire", "granted", "released"]);
    expect(claims.size).toBe(1);
    expect(
      JSON.stringify(heard, (_, value) => (typeof value === "bigint" ? `${value}` : value)),
    ).not.toContain(lease.token);
  });

  test("one that has to wait says so before it is granted", async () => {
    const scene = new Scene();
    const rival = await scene.rival().mutex("k").acquire();
    heard = [];
    scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(70);
    expect(heardKinds()).toEqual(["acquire", "waiting"]);
    await rival.release();
    await scene.clock.advance(0);
    const own = heard.filter((event) => "claim" in event && event.claim.owner === scene.locks.owner);
    expect(own.map(({ kind }) => kind)).toEqual(["acquire", "waiting", "granted"]);
    expect(last("granted").waitedMs).toBe(70);
  });

  test("the time waited is counted from the call, however often the store was asked", async () => {
    const scene = new Scene();
    scene.faults = ({ verb, count }) => (verb === "acquire" && count <= 2 ? { lose: "request" } : undefined);
    stop();
    const waited: number[] = [];
    // Nothing else, so that nothing was told of the claim before.
    stop = observeScenes({ granted: ({ waitedMs }) => waited.push(waitedMs) });
    scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(500);
    expect(waited).toEqual([20 + 40]);
  });

  test("a listener that came late is told of what began before, as far as that is known", async () => {
    stop();
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    await scene.clock.advance(100);
    const late: object[] = [];
    stop = observeScenes({ released: (event) => late.push(event) });
    await lease.release();
    expect(late).toMatchObject([{ heldMs: 100, wasHeld: true, claim: { key: "k", askedMs: 1_000 } }]);
  });

  test.each([
    ["tryAcquire", (scene: Scene) => scene.locks.mutex("k").tryAcquire()],
    ["acquire with a waitMs of 0", (scene: Scene) => scene.locks.mutex("k").acquire({ waitMs: 0 })],
  ])("%s of a taken lock is contended", async (_, call) => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("k").acquire());
    heard = [];
    scene.begin<unknown>(call(scene));
    await scene.clock.advance(0);
    expect(heardKinds()).toEqual(["acquire", "contended"]);
    expect(last("contended").claim.wait).toBe(false);
  });

  test("the end of a wait, a cancelled call and a closed client are told apart", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("k").acquire());
    const controller = new AbortController();
    scene.begin(scene.locks.mutex("k").acquire({ waitMs: 50 }));
    scene.begin(scene.locks.mutex("k").acquire({ signal: controller.signal }));
    scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(60);
    expect(last("timeout").waitedMs).toBe(50);
    controller.abort();
    expect(last("cancelled")).toMatchObject({ reason: "signal", waitedMs: 60 });
    await scene.locks.close();
    expect(last("cancelled")).toMatchObject({ reason: "closed", waitedMs: 60 });
  });

  test("an outage is told apart from an error", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    scene.faults = () => ({ error: new HoldfastError("UNAUTHORIZED", "Not for you.") });
    scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(0);
    expect(last("failed")).toMatchObject({ code: "UNAUTHORIZED", outage: false });
    scene.cutOff();
    scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(600);
    expect(last("failed")).toMatchObject({ code: "STORE_UNAVAILABLE", outage: true, waitedMs: 600 });
    expect(last("failed").error).toMatchObject({ key: "k" });
  });
});

describe("events: holding", () => {
  test("every confirmed heartbeat is told, and every one that failed", async () => {
    const scene = new Scene();
    scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(1_000);
    expect(last("renewed").leftMs).toBeCloseTo(2_996);
    scene.refuseCalls();
    await scene.clock.advance(1_000);
    expect(last("renewal-failed")).toMatchObject({ code: "STORE_UNAVAILABLE", outage: true });
    expect(last("renewal-failed").leftMs).toBeCloseTo(1_996);
  });

  test("a heartbeat that is not answered at all is told as well", async () => {
    const scene = new Scene();
    scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    scene.cutOff();
    await scene.clock.advance(1_500);
    expect(heardKinds()).toEqual(["acquire", "granted", "renewal-failed"]);
    expect(last("renewal-failed")).toMatchObject({ code: "STORE_UNAVAILABLE", outage: true });
    expect(last("renewal-failed")).not.toHaveProperty("error");
  });

  test("an extension is told once it is confirmed, and not when it fails", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    const lease = await scene.locks.mutex("k").acquire();
    await lease.extend(60_000);
    await settled();
    expect(last("extended")).toMatchObject({ ttlMs: 60_000, claim: { key: "k" } });
    heard = [];
    scene.cutOff();
    const failing = scene.begin(lease.extend(60_000));
    await scene.clock.advance(1_000);
    expect(failing.state).toBe("rejected");
    expect(heardKinds()).not.toContain("extended");
  });

  test("a loss tells its reason and how long the lease was held", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    await scene.clock.advance(TTL_MS);
    expect(last("lost")).toMatchObject({ reason: "expired", fence: lease.fence, claim: { id: lease.id } });
    expect(last("lost").heldMs).toBeCloseTo(2_996);
    expect(last("lost").error).toBe(lease.signal.reason);
  });

  test("a lease that is won again is another claim", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, reacquire: true }).acquire();
    const firstId = lease.id;
    await scene.rival().forceRelease("k", firstId);
    heard = [];
    await scene.clock.advance(1_000);
    expect(heardKinds()).toEqual(["lost", "acquire", "granted"]);
    expect(last("lost").claim.id).toBe(firstId);
    expect(last("acquire")).toMatchObject({ again: true, claim: { id: lease.id } });
    expect(last("granted")).toMatchObject({ again: true, claim: { id: lease.id }, fence: lease.fence });
    expect(lease.id).not.toBe(firstId);
  });

  test("a lost lease that is released before it is won again is told as cancelled", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, reacquire: true }).acquire();
    const rival = scene.rival();
    await rival.forceRelease("k", lease.id);
    scene.keep(await rival.mutex("k").acquire());
    await scene.clock.advance(1_000);
    heard = [];
    await lease.release();
    expect(heardKinds()).toEqual(["cancelled"]);
    expect(last("cancelled")).toMatchObject({ reason: "released", claim: { id: lease.id } });
  });
});

describe("events: giving back", () => {
  test("a release tells whether the lease was still there", async () => {
    const scene = new Scene();
    const first = await scene.locks.mutex("k").acquire();
    await scene.clock.advance(30);
    await first.release();
    expect(last("released")).toMatchObject({ wasHeld: true, heldMs: 30, fence: first.fence });
    const second = await scene.locks.mutex("k").acquire();
    await scene.rival().forceRelease("k", second.id);
    await second.release();
    expect(last("released")).toMatchObject({ wasHeld: false, fence: second.fence });
  });

  test("a release that the store does not confirm is told as failed", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    const lease = await scene.locks.mutex("k").acquire();
    scene.cutOff();
    scene.begin(lease.release());
    await scene.clock.advance(600);
    expect(last("release-failed")).toMatchObject({ code: "STORE_UNAVAILABLE", outage: true, heldMs: 600 });
    expect(heardKinds()).not.toContain("released");
  });

  test("a closed client tells of its leases as lost, once each", async () => {
    const { locks } = new Scene();
    await locks.mutex("k").acquire();
    heard = [];
    await locks.close();
    expect(heardKinds()).toEqual(["lost", "closed"]);
    expect(last("lost").reason).toBe("closed");
  });

  test("a detached lease is told as such", async () => {
    const { locks } = new Scene();
    const lease = await locks.mutex("k").acquire();
    heard = [];
    lease.detach();
    await lease.release();
    expect(heardKinds()).toEqual(["detached"]);
  });

  test("a release by force is told by whoever does it", async () => {
    const { locks } = new Scene();
    const lease = await locks.mutex("k").acquire();
    await locks.forceRelease("k", lease.id);
    expect(last("force-released")).toMatchObject({ key: "k", id: lease.id, released: true, store: "memory" });
  });
});

describe("events: the store", () => {
  test("an outage is told once when it begins and once when it is over", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    scene.refuseCalls();
    for (const key of ["a", "b"]) scene.begin(scene.locks.mutex(key).acquire());
    await scene.clock.advance(600);
    scene.reconnect();
    await scene.clock.advance(400);
    scene.keep(await scene.locks.mutex("c").acquire());
    await settled();
    const told = heard.filter(({ kind }) => kind.startsWith("store-"));
    expect(told).toMatchObject([
      { kind: "store-unavailable", store: "memory", owner: scene.locks.owner, code: "STORE_UNAVAILABLE" },
      { kind: "store-available", store: "memory", owner: scene.locks.owner },
    ]);
  });

  test("the end of a client is told last, and nothing of what was still under way then", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    scene.keep(await scene.locks.mutex("k", { maxHoldMs: 100 }).acquire());
    // (1) The lease is lost, and its claim taken back. (2) The client is closed without an answer to that. (3) That fails.
    scene.faults = ({ verb }) => (verb === "release" ? { lose: "request", afterMs: 5_000 } : undefined);
    await scene.clock.advance(100);
    const closing = scene.locks.close();
    await scene.clock.advance(600);
    await closing;
    await scene.clock.advance(10_000);
    expect(heardKinds().filter((kind) => kind === "closed")).toHaveLength(1);
    expect(heardKinds().at(-1)).toBe("closed");
    expect(last("closed")).toEqual({ kind: "closed", store: "memory", owner: scene.locks.owner });
  });

  test("a warning is an event, too", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    scene.refuseCalls();
    scene.begin(scene.locks.mutex("k", { onUnavailable: "skip" }).tryRun(() => {}));
    await scene.clock.advance(600);
    expect(last("warning")).toMatchObject({
      code: "SKIPPED_UNAVAILABLE",
      key: "k",
      warning: scene.warnings[0],
    });
  });

  test("so is one of a schedule or an election", async () => {
    const scene = new Scene();
    const failing = () => {
      throw new Error("no spoon");
    };
    const schedule = scene.locks.schedule("job", "* * * * * *", failing, { ttlMs: TTL_MS });
    const election = scene.locks.election("office", { retryMs: 60_000 });
    const campaign = election.lead(failing);
    await scene.clock.advance(1_000);
    await Promise.all([schedule.stop(), election.resign(), campaign]);
    const told = heard.flatMap((event) => (event.kind === "warning" ? [event.warning] : []));
    expect(told).toMatchObject([
      { code: "RUN_FAILED", key: "office" },
      { code: "RUN_FAILED", key: "job" },
    ]);
    expect(told).toEqual(scene.warnings);
    expect(scene.locks.stats().warnings).toBe(2);
  });

  test("so is one of the heartbeat's thread", async () => {
    const warning = { code: "THREAD_FAILED", message: "It has ended.", key: "" } as const;
    const thread: HeartbeatThread = {
      start({ onWarning }) {
        queueMicrotask(() => onWarning(warning));
        return { keep: () => expect.unreachable("there is no lease"), close: async () => {} };
      },
    };
    const scene = new Scene({ thread });
    await settled();
    expect(last("warning")).toMatchObject({ code: "THREAD_FAILED", warning });
    expect(scene.warnings).toEqual([warning]);
    expect(scene.locks.stats().warnings).toBe(1);
  });
});

describe("events: keys", () => {
  /** Makes one of everything that names a key. */
  async function trouble(eventKey: false | ((key: string) => string)): Promise<void> {
    const scene = new Scene({ requestTimeoutMs: 600, eventKey });
    const lease = await scene.locks.mutex("secret:7", { ttlMs: TTL_MS }).acquire();
    await scene.locks.mutex("secret:7").tryAcquire();
    await scene.locks.forceRelease("secret:7", lease.id);
    await scene.clock.advance(1_000);
    scene.refuseCalls();
    scene.begin(scene.locks.mutex("secret:7", { onUnavailable: "skip" }).tryAcquire());
    await scene.clock.advance(600);
    const wanted = [
      "granted",
      "contended",
      "force-released",
      "lost",
      "failed",
      "store-unavailable",
      "warning",
    ];
    expect(heardKinds()).toEqual(expect.arrayContaining(wanted));
  }

  /** All that can be read from the events, what errors say included. */
  function readable(): string {
    return heard.map((event) => inspectAll(event)).join("\n");
  }

  test("can be withheld, and then no event names them anywhere", async () => {
    await trouble(false);
    expect(readable()).not.toContain("secret");
    expect(last("granted").claim.key).toBeUndefined();
    expect(last("lost")).not.toHaveProperty("error");
  });

  test("can be replaced by a label, and then no event names them anywhere", async () => {
    await trouble((key) => `kind-of-${key.length}`);
    expect(readable()).not.toContain("secret");
    expect(last("granted").claim.key).toBe("kind-of-8");
    expect(last("force-released").key).toBe("kind-of-8");
  });

  test("an eventKey of the wrong type is refused", () => {
    expect(() => createLocks(memoryStore(), { eventKey: true as never })).toThrow(
      /eventKey must be false or a function, not true/,
    );
  });
});

describe("observe", () => {
  test("tells nothing any more once it is stopped", async () => {
    const { locks } = new Scene();
    stop();
    await locks.mutex("k").acquire();
    expect(heard).toEqual([]);
    expect(channel("holdfast:granted").hasSubscribers).toBe(false);
  });

  test("the channels are those of node:diagnostics_channel", async () => {
    const told: unknown[] = [];
    const listener = (event: unknown) => told.push(event);
    subscribe("holdfast:granted", listener);
    await new Scene().locks.mutex("k").acquire();
    unsubscribe("holdfast:granted", listener);
    expect(told).toMatchObject([{ claim: { key: "k" } }]);
  });

  test("refuses what is not an event, and what is not a function", () => {
    expect(() => observe({ grants: () => {} } as never)).toThrow(
      /no event "grants"\. Its events are acquire, /,
    );
    expect(() => observe({ granted: "log" } as never)).toThrow(/a function for "granted", not log/);
  });
});

function inspectAll(value: unknown): string {
  if (value instanceof Error) return `${value.message} ${inspectAll(value.cause)}`;
  if (typeof value !== "object" || value === null) return String(value);
  return Object.values(value).map(inspectAll).join(" ");
}
