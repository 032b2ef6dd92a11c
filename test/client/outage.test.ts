import { HoldfastError, type Lock, StoreUnavailableError } from "holdfast";
import { describe, expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

const REQUEST_TIMEOUT_MS = 600;

const options = { requestTimeoutMs: REQUEST_TIMEOUT_MS };

const verbs: readonly [string, (lock: Lock) => Promise<unknown>][] = [
  ["tryAcquire", (lock) => lock.tryAcquire()],
  ["acquire", (lock) => lock.acquire()],
  ["tryRun", (lock) => lock.tryRun(() => "ran")],
  ["run", (lock) => lock.run(() => "ran")],
];

describe("outage: looking", () => {
  test.each([
    ["inspect", (scene: Scene) => scene.locks.inspect("k")],
    ["list", (scene: Scene) => scene.locks.list().next()],
    ["forceRelease", (scene: Scene) => scene.locks.forceRelease("k", "id")],
    ["a lock's inspect", (scene: Scene) => scene.locks.mutex("k").inspect()],
  ])("%s does not wait for ever for a silent store", async (_, look) => {
    const scene = new Scene(options);
    scene.cutOff();
    const looking = scene.begin<unknown>(look(scene));
    await scene.clock.advance(REQUEST_TIMEOUT_MS);
    expect(looking).toMatchObject({ error: { code: "STORE_UNAVAILABLE" }, atMs: REQUEST_TIMEOUT_MS });
    expect(scene.clock.pendingTimers).toBe(0);
  });
});

describe.each(verbs)("outage: %s", (_, call) => {
  test.each([
    ["fails", (scene: Scene) => scene.refuseCalls()],
    ["is silent", (scene: Scene) => scene.cutOff()],
  ])("rejects after requestTimeoutMs when the store %s, having asked again", async (_, breakDown) => {
    const scene = new Scene(options);
    breakDown(scene);
    const calling = scene.begin(call(scene.locks.mutex("k", { ttlMs: TTL_MS })));
    await scene.clock.advance(REQUEST_TIMEOUT_MS - 1);
    expect(calling.state).toBe("pending");
    await scene.clock.advance(1);
    expect(calling.error).toBeInstanceOf(StoreUnavailableError);
    expect(calling.error).toMatchObject({ code: "STORE_UNAVAILABLE", key: "k", retryable: true });
    expect(calling.error).toHaveProperty("message", expect.stringContaining("(requestTimeoutMs 600)"));
    const asked = scene.sent("acquire").map(({ args: [{ id, token }] }) => `${id} ${token}`);
    expect(asked.length).toBeGreaterThanOrEqual(3);
    expect(new Set(asked).size).toBe(1);
  });

  test("rejects at once with what asking again would not mend", async () => {
    const scene = new Scene(options);
    const denied = new HoldfastError("UNAUTHORIZED", "Not for you.");
    scene.faults = () => ({ error: denied });
    const first = scene.begin(call(scene.locks.mutex("k")));
    await scene.clock.advance(0);
    expect(first).toMatchObject({ state: "rejected", error: denied });
    const broken = new Error("disk full");
    scene.faults = () => ({ error: broken });
    const second = scene.begin(call(scene.locks.mutex("k")));
    await scene.clock.advance(0);
    expect(second.error).toMatchObject({ code: "STORE_FAILURE", key: "k", cause: broken });
    expect(scene.sent("acquire")).toHaveLength(2);
  });
});

describe("outage: acquiring", () => {
  test("the cause is what the store failed with last", async () => {
    const scene = new Scene(options);
    const cause = new StoreUnavailableError("Connection refused.");
    scene.faults = () => ({ error: cause });
    const trying = scene.begin(scene.locks.mutex("k").tryAcquire());
    await scene.clock.advance(REQUEST_TIMEOUT_MS);
    expect(trying.error).toMatchObject({ code: "STORE_UNAVAILABLE", cause });
  });

  test("the message has what a store that answers says, and says of no other that it answered", async () => {
    const messageOf = async (breakDown: (scene: Scene) => void) => {
      const scene = new Scene(options);
      breakDown(scene);
      const trying = scene.begin(scene.locks.mutex("k").tryAcquire());
      await scene.clock.advance(REQUEST_TIMEOUT_MS);
      return (trying.error as Error).message;
    };
    const failing = (message: string) => (scene: Scene) => {
      scene.faults = () => ({ error: new StoreUnavailableError(message) });
    };
    const beginning = 'The memory store could not serve "k" (requestTimeoutMs 600).';
    const end = "The holder is unknown. A claim that this call left in the store ends with its ttl.";
    expect(await messageOf(failing("The disk is full. Make room."))).toBe(
      `${beginning} The disk is full. Make room. ${end}`,
    );
    expect(await messageOf(failing("It cannot be reached: ECONNREFUSED"))).toBe(
      `${beginning} It cannot be reached: ECONNREFUSED. ${end}`,
    );
    expect(await messageOf((scene) => scene.cutOff())).toBe(
      `The memory store did not answer for "k" (requestTimeoutMs 600). ${end}`,
    );
  });

  test.each([
    ["refuses every request", (scene: Scene) => scene.refuseCalls(), "could not serve"],
    ["is silent", (scene: Scene) => scene.cutOff(), "did not answer for"],
  ])(
    "a store that %s is an outage, also if waitMs ends before requestTimeoutMs",
    async (_, breakDown, told) => {
      const scene = new Scene(options);
      breakDown(scene);
      const waiting = scene.begin(scene.locks.mutex("k").acquire({ waitMs: 100 }));
      await scene.clock.advance(100);
      expect(waiting).toMatchObject({ atMs: 100, error: { code: "STORE_UNAVAILABLE", key: "k" } });
      expect(waiting.error).toHaveProperty("message", expect.stringContaining(`${told} "k" (waitMs 100).`));
      expect(scene.locks.stats()).toMatchObject({ asked: 1, failed: 1, timedOut: 0 });
      // A request that was on its way is granted all the same, and is given back.
      scene.reconnect();
      await scene.clock.advance(TTL_MS);
      expect((await scene.status("k")).heldCount).toBe(0);
    },
  );

  test("an outage that begins while a call waits in the queue is contention at the end of waitMs", async () => {
    const scene = new Scene(options);
    scene.keep(await scene.rival().mutex("k").acquire());
    const waiting = scene.begin(scene.locks.mutex("k").acquire({ waitMs: 100 }));
    await scene.clock.advance(50);
    scene.refuseCalls();
    await scene.clock.advance(2_000);
    expect(waiting.error).toMatchObject({ code: "ACQUIRE_TIMEOUT" });
  });

  test("a group reports an outage while it waits for its second lock, and gives back the first", async () => {
    const scene = new Scene(options);
    scene.faults = ({ verb, count }) => (verb === "acquire" && count > 1 ? { lose: "request" } : undefined);
    const group = scene.locks.all([scene.locks.mutex("a"), scene.locks.mutex("b")]);
    const waiting = scene.begin(group.acquire({ waitMs: 100 }));
    await scene.clock.advance(200);
    expect(waiting.error).toMatchObject({ code: "STORE_UNAVAILABLE", key: "b" });
    expect((await scene.status("a")).heldCount).toBe(0);
  });

  test("an outage shorter than requestTimeoutMs goes unnoticed", async () => {
    const scene = new Scene(options);
    scene.cutOff();
    const trying = scene.begin(scene.locks.mutex("k").tryAcquire());
    await scene.clock.advance(300);
    scene.reconnect();
    await scene.clock.advance(100);
    expect(trying.value?.held).toBe(true);
  });

  test("lost replies make no second claim, neither held nor waiting", async () => {
    const scene = new Scene(options);
    scene.faults = ({ verb, count }) => (verb === "acquire" && count <= 2 ? { lose: "reply" } : undefined);
    const holding = scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(200);
    scene.faults = ({ verb, count }) => (verb === "acquire" && count <= 5 ? { lose: "reply" } : undefined);
    scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(200);
    expect(scene.sent("acquire")).toHaveLength(6);
    const status = await scene.status("k");
    expect([status.heldCount, status.waitingCount]).toEqual([1, 1]);
    expect(holding.value?.fence).toBe(status.held[0]?.fence);
  });

  test("a store slower than the pause between repeats still serves", async () => {
    const scene = new Scene(options);
    scene.faults = () => ({ afterMs: 450 });
    const trying = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).tryAcquire());
    await scene.clock.advance(450);
    expect(trying.value?.held).toBe(true);
    await scene.clock.advance(60_000);
    expect(trying.value?.held).toBe(true);
    expect((await scene.status("k")).heldCount).toBe(1);
  });

  test("an answer that arrives when its time is up is not handed out", async () => {
    const scene = new Scene();
    scene.faults = ({ verb }) => (verb === "acquire" ? { afterMs: 1_000 } : undefined);
    const trying = scene.begin(scene.locks.mutex("k", { ttlMs: 1_000, renew: false }).tryAcquire());
    await scene.clock.advance(20_000);
    expect(trying).toMatchObject({ state: "rejected", error: { code: "STORE_UNAVAILABLE" } });
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("a grant that comes after the call has given up is given back", async () => {
    const scene = new Scene(options);
    scene.faults = ({ verb }) => (verb === "acquire" ? { beforeMs: 1_000 } : undefined);
    const trying = scene.begin(scene.locks.mutex("k").tryAcquire());
    await scene.clock.advance(REQUEST_TIMEOUT_MS);
    expect(trying.state).toBe("rejected");
    await scene.clock.advance(1_000);
    expect(await scene.rival().mutex("k").tryAcquire()).not.toBeNull();
    expect(scene.locks.stats()).toMatchObject({ granted: 0, held: 0 });
  });

  test("what a repeated request may yet bring after a refusal is given back", async () => {
    const scene = new Scene(options);
    const holder = await scene.rival().mutex("k").acquire();
    // The first request is late, and its answer is lost. The second one, 200 ms later, is refused at once.
    scene.faults = ({ verb, count }) => {
      if (verb === "release") return { beforeMs: 10 };
      return verb === "acquire" && count === 1 ? { beforeMs: 205, lose: "reply", hang: true } : undefined;
    };
    const trying = scene.begin(scene.locks.mutex("k", { ttlMs: 60_000 }).tryAcquire());
    await scene.clock.advance(200);
    expect(trying).toMatchObject({ state: "fulfilled", value: null });
    await holder.release();
    await scene.clock.advance(5);
    expect((await scene.status("k")).heldCount).toBe(1);
    await scene.clock.advance(5);
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("a pause of the process while asking is no outage", async () => {
    const scene = new Scene(options);
    scene.faults = ({ verb, count }) =>
      verb === "acquire" && count === 1 ? { lose: "request", hang: true } : undefined;
    const trying = scene.begin(scene.locks.mutex("k").tryAcquire());
    scene.clock.block(60_000);
    await scene.clock.advance(0);
    expect(trying.value?.held).toBe(true);
  });
});

describe("outage: onUnavailable skip", () => {
  test("a try reports that nobody runs, warns and counts it", async () => {
    const scene = new Scene(options);
    scene.cutOff();
    const lock = scene.locks.mutex("daily", { onUnavailable: "skip" });
    let ran = false;
    const trying = scene.begin(lock.tryAcquire());
    const running = scene.begin(
      lock.tryRun(() => {
        ran = true;
      }),
    );
    await scene.clock.advance(REQUEST_TIMEOUT_MS);
    expect(trying).toMatchObject({ state: "fulfilled", value: null });
    expect(running).toMatchObject({ value: { ran: false, reason: "unavailable" } });
    expect(ran).toBe(false);
    expect(scene.locks.stats().skipped).toBe(2);
    expect(scene.warnings).toHaveLength(2);
    expect(scene.warnings[0]).toMatchObject({ code: "SKIPPED_UNAVAILABLE", key: "daily" });
    expect(scene.warnings[0]?.cause).toBeInstanceOf(StoreUnavailableError);
  });

  test("contention is not counted as an outage", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("daily").acquire());
    const lock = scene.locks.mutex("daily", { onUnavailable: "skip" });
    expect(await lock.tryRun(() => "ran")).toEqual({ ran: false, reason: "contended" });
    expect(scene.locks.stats().skipped).toBe(0);
    expect(scene.warnings).toEqual([]);
  });

  test("whoever waits wants the lock, and is told", async () => {
    const scene = new Scene(options);
    scene.refuseCalls();
    const lock = scene.locks.mutex("daily", { onUnavailable: "skip" });
    const outcomes = [scene.begin(lock.acquire()), scene.begin(lock.run(() => "ran"))];
    await scene.clock.advance(REQUEST_TIMEOUT_MS);
    for (const { error } of outcomes) expect(error).toBeInstanceOf(StoreUnavailableError);
  });

  test("a failure that is no outage is thrown", async () => {
    const scene = new Scene(options);
    scene.faults = () => ({ error: new HoldfastError("UNAUTHORIZED", "Not for you.") });
    const lock = scene.locks.mutex("daily", { onUnavailable: "skip" });
    await expect(lock.tryAcquire()).rejects.toMatchObject({ code: "UNAUTHORIZED" });
    expect(scene.locks.stats().skipped).toBe(0);
  });
});

describe("outage: releasing", () => {
  test("rejects after requestTimeoutMs, and the ttl ends the lease", async () => {
    const scene = new Scene(options);
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.cutOff();
    const releasing = scene.begin(lease.release());
    expect(lease.held).toBe(false);
    await scene.clock.advance(REQUEST_TIMEOUT_MS - 1);
    expect(releasing.state).toBe("pending");
    await scene.clock.advance(1);
    expect(releasing.error).toBeInstanceOf(StoreUnavailableError);
    expect(scene.sent("release").length).toBeGreaterThanOrEqual(3);
    expect((await scene.status("k")).heldCount).toBe(1);
    await scene.clock.advance(TTL_MS);
    expect((await scene.status("k")).heldCount).toBe(0);
    expect(scene.sent("renew")).toEqual([]);
  });

  test("is repeated until the store hears it", async () => {
    const scene = new Scene(options);
    const lease = await scene.locks.mutex("k").acquire();
    scene.refuseCalls();
    const releasing = scene.begin(lease.release());
    await scene.clock.advance(300);
    scene.reconnect();
    await scene.clock.advance(300);
    expect(releasing.value).toBe(true);
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("rejects at once with what repeating would not mend", async () => {
    const scene = new Scene(options);
    const lease = await scene.locks.mutex("k").acquire();
    scene.faults = () => ({ error: new Error("disk full") });
    const releasing = scene.begin(lease.release());
    await scene.clock.advance(0);
    expect(releasing).toMatchObject({ state: "rejected", error: { code: "STORE_FAILURE" } });
  });

  test("at the end of a scope it is a warning, and the lease is over", async () => {
    const scene = new Scene(options);
    const lease = await scene.locks.mutex("k").acquire();
    scene.cutOff();
    const leaving = scene.begin(lease[Symbol.asyncDispose]());
    await scene.clock.advance(REQUEST_TIMEOUT_MS);
    expect(leaving.state).toBe("fulfilled");
    expect(scene.warnings).toMatchObject([{ code: "RELEASE_FAILED", key: "k" }]);
    expect(lease.held).toBe(false);
  });

  test("at the end of a body it hides neither its value nor its error", async () => {
    const scene = new Scene(options);
    const failure = new Error("the body's own");
    const [done, failed] = [
      scene.begin(scene.locks.mutex("a").run(() => "done")),
      scene.begin(scene.locks.mutex("b").tryRun(() => Promise.reject(failure))),
    ];
    scene.faults = ({ verb }) => (verb === "release" ? { lose: "request", hang: true } : undefined);
    await scene.clock.advance(REQUEST_TIMEOUT_MS);
    expect(done).toMatchObject({ state: "fulfilled", value: "done" });
    expect(failed).toMatchObject({ state: "rejected", error: failure });
    expect(scene.warnings.map(({ code }) => code)).toEqual(["RELEASE_FAILED", "RELEASE_FAILED"]);
  });
});
