import { LeaseLostError, type LockGroup } from "holdfast";
import { describe, expect, test } from "vitest";
import { type Outcome, Scene, TTL_MS } from "./scene.ts";

/** The mutexes "a", "b" and "c" as one, named in another order. */
function groupOf(scene: Scene, options = {}): LockGroup {
  return scene.locks.all(["c", "a", "b"].map((key) => scene.locks.mutex(key, { ttlMs: TTL_MS, ...options })));
}

async function heldKeys(scene: Scene): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key, heldCount } of scene.rival().list()) if (heldCount > 0) keys.push(key);
  return keys.sort();
}

describe("lock group", () => {
  test("asks for one key after the other, in their order, and gives them back the other way round", async () => {
    const scene = new Scene();
    const group = groupOf(scene);
    expect(group.keys).toEqual(["a", "b", "c"]);
    const leases = await group.acquire();
    expect(scene.sent("acquire").map(({ args }) => args[0].key)).toEqual(["a", "b", "c"]);
    await leases.release();
    expect(scene.sent("release").flatMap(({ args }) => args[0].map(({ key }) => key))).toEqual([
      "c",
      "b",
      "a",
    ]);
  });

  test("does not ask for the next key before it has the one in front of it", async () => {
    const scene = new Scene();
    const blocker = await scene.rival().mutex("b").acquire();
    const acquiring = scene.begin(groupOf(scene).acquire());
    await scene.clock.advance(5_000);
    expect(scene.sent("acquire").map(({ args }) => args[0].key)).toEqual(["a", "b"]);
    await blocker.release();
    await scene.clock.advance(0);
    expect(acquiring.value?.held).toBe(true);
  });

  test("waitMs is for all of them together", async () => {
    const scene = new Scene();
    const rival = scene.rival();
    const a = await rival.mutex("a").acquire();
    scene.keep(await rival.mutex("b").acquire());
    const acquiring = scene.begin(groupOf(scene).acquire({ waitMs: 1_000 }));
    await scene.clock.advance(700);
    await a.release();
    await scene.clock.advance(299);
    expect(acquiring.state).toBe("pending");
    await scene.clock.advance(1);
    expect(acquiring).toMatchObject({ state: "rejected", error: { code: "ACQUIRE_TIMEOUT", key: "b" } });
    expect((acquiring.error as Error).message).toContain("within 1000 ms");
    expect(await heldKeys(scene)).toEqual(["b"]);
    expect((await scene.status("b")).waitingCount).toBe(0);
  });

  test("rejects when a lease is lost while it waits for the next, and leaves nothing behind", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("b").acquire());
    const acquiring = scene.begin(groupOf(scene).acquire());
    await scene.clock.advance(0);
    const [claim] = (await scene.status("a")).held;
    await scene.rival().forceRelease("a", claim!.id);
    await scene.clock.advance(1_000);
    expect(acquiring.error).toBeInstanceOf(LeaseLostError);
    expect(acquiring.error).toMatchObject({ key: "a", reason: "gone" });
    expect(await heldKeys(scene)).toEqual(["b"]);
    expect((await scene.status("b")).waitingCount).toBe(0);
  });

  test("a try hands out only what is held all together", async () => {
    const scene = new Scene();
    scene.faults = ({ verb, args }) =>
      verb === "acquire" && args[0].key === "b" ? { afterMs: TTL_MS } : undefined;
    const brief = scene.locks.mutex("a", { ttlMs: TTL_MS, renew: false });
    const trying = scene.begin(scene.locks.all([brief, scene.locks.mutex("b")]).tryAcquire());
    await scene.clock.advance(TTL_MS);
    expect(trying.error).toBeInstanceOf(LeaseLostError);
    expect(await heldKeys(scene)).toEqual([]);
  });

  test("the order of keys is that of their bytes in UTF-8, which all languages can agree on", () => {
    const { locks } = new Scene();
    const astral = "\u{1f512}";
    const group = locks.all([astral, "\uffee", "b", "a"].map((key) => locks.mutex(key)));
    expect(group.keys).toEqual(["a", "b", "\uffee", astral]);
  });

  test("cancelling it gives back what it had", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("c").acquire());
    const controller = new AbortController();
    const acquiring = scene.begin(groupOf(scene).acquire({ signal: controller.signal }));
    await scene.clock.advance(10_000);
    expect(await heldKeys(scene)).toEqual(["a", "b", "c"]);
    const reason = new Error("no longer wanted");
    controller.abort(reason);
    await scene.clock.advance(0);
    expect(acquiring.error).toBe(reason);
    expect(await heldKeys(scene)).toEqual(["c"]);
  });

  test("its signal aborts with the first loss, and its leases can be told apart", async () => {
    const scene = new Scene();
    const group = await groupOf(scene).acquire();
    expect(group.signal).toBe(group.signal);
    expect(group.lease("b").key).toBe("b");
    expect(() => group.lease("d")).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    await scene.rival().forceRelease("b", group.lease("b").id);
    await scene.clock.advance(1_000);
    expect(group.signal.reason).toMatchObject({ code: "LEASE_LOST", key: "b" });
    expect(group.held).toBe(false);
    expect(() => group.assertHeld()).toThrow(LeaseLostError);
    expect(await group.release()).toBe(false);
    expect(await heldKeys(scene)).toEqual([]);
  });

  test("tryRun says why it did not run", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    const group = groupOf(scene, { onUnavailable: "skip" });
    const holder = await scene.rival().mutex("c").acquire();
    expect(await group.tryRun(() => "ran")).toEqual({ ran: false, reason: "contended" });
    await holder.release();
    expect(await group.tryRun((leases) => leases.held)).toEqual({ ran: true, value: true });
    scene.cutOff();
    const cutOff = scene.begin(group.tryRun(() => "ran"));
    await scene.clock.advance(600);
    expect(cutOff.value).toEqual({ ran: false, reason: "unavailable" });
  });

  test("gives back what it had when the store fails in the middle", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    scene.faults = ({ verb, args }) =>
      verb === "acquire" && args[0].key === "c" ? { lose: "request", hang: true } : undefined;
    const calls: Outcome<unknown>[] = [scene.begin(groupOf(scene).acquire())];
    await scene.clock.advance(600);
    calls.push(scene.begin(groupOf(scene).tryAcquire()));
    await scene.clock.advance(600);
    for (const { error } of calls) expect(error).toMatchObject({ code: "STORE_UNAVAILABLE", key: "c" });
    expect(await heldKeys(scene)).toEqual([]);
  });

  test("run gives them back when the body throws", async () => {
    const scene = new Scene();
    const failure = new Error("the body's own");
    await expect(groupOf(scene).run(() => Promise.reject(failure))).rejects.toBe(failure);
    expect(await heldKeys(scene)).toEqual([]);
  });

  test("is refused when it is empty, names a key twice, or holds something else than locks", () => {
    const { locks } = new Scene();
    const lock = locks.mutex("a");
    expect(() => locks.all([])).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    expect(() => locks.all([lock, locks.semaphore("a", 2)])).toThrow(
      expect.objectContaining({ code: "DEADLOCK", key: "a" }),
    );
    expect(() => locks.all([{ ...lock, key: "b" }])).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT" }),
    );
  });
});
