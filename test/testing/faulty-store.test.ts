import {
  type ClaimRef,
  type ClaimRequest,
  createLocks,
  HoldfastError,
  memoryStore,
  type Store,
  StoreUnavailableError,
} from "holdfast";
import {
  type Fault,
  type FaultPlan,
  faultyStore,
  ManualClock,
  type StoreCall,
  settled,
} from "holdfast/testing";
import { describe, expect, test } from "vitest";

const request = (id: string, over: Partial<ClaimRequest> = {}): ClaimRequest => ({
  key: "k",
  id,
  token: id,
  weight: 1,
  limit: 1,
  priority: 0,
  ttlMs: 60_000,
  wait: false,
  owner: "me",
  info: "",
  application: "",
  ...over,
});

/** A faulty store whose next call meets the fault, the store behind it, and their clock. */
function broken(fault: Fault | undefined, verb: StoreCall["verb"] = "acquire") {
  const clock = new ManualClock();
  const inner = memoryStore({ clock });
  let armed = true;
  const plan: FaultPlan = (call) => {
    if (call.verb !== verb || !armed) return;
    armed = false;
    return fault;
  };
  return { clock, inner, store: faultyStore(inner, plan, { clock }) };
}

/** How a promise stands at this moment. */
async function stateOf(promise: Promise<unknown>): Promise<string> {
  let state = "pending";
  promise.then(
    () => {
      state = "resolved";
    },
    () => {
      state = "rejected";
    },
  );
  await settled();
  return state;
}

async function heldIds(store: Store): Promise<string[]> {
  return (await store.look({ key: "k", maxClaims: 10 })).keys[0]!.held.map((claim) => claim.id);
}

describe("faultyStore", () => {
  test("without a fault it is the store, name and all", async () => {
    const { inner, store } = broken(undefined);
    expect([store.name, store.durability, store.counts]).toEqual([
      inner.name,
      inner.durability,
      inner.counts,
    ]);
    expect((await store.acquire(request("a"))).state).toBe("held");
    expect((await store.renew([request("a")]))[0]!.state).toBe("held");
    expect(await heldIds(store)).toEqual(["a"]);
    expect(await store.release([request("a")])).toEqual([true]);
    await store.close();
    await expect(inner.look({ key: "k", maxClaims: 1 })).rejects.toMatchObject({ code: "CLOSED" });
  });

  test("the plan is told each call, with its arguments and its count by verb", async () => {
    const calls: StoreCall[] = [];
    const store = faultyStore(memoryStore(), (call) => {
      calls.push(call);
      return undefined;
    });
    await store.acquire(request("a"));
    await store.acquire(request("b"));
    await store.renew([request("a")]);
    await store.release([request("a")]);
    await store.look({ key: "k", maxClaims: 1 });
    expect(calls).toEqual([
      { verb: "acquire", args: [request("a")], count: 1 },
      { verb: "acquire", args: [request("b")], count: 2 },
      { verb: "renew", args: [[request("a")]], count: 1 },
      { verb: "release", args: [[request("a")]], count: 1 },
      { verb: "look", args: [{ key: "k", maxClaims: 1 }], count: 1 },
    ]);
  });

  test("a lost request never reaches the store, and the caller is told that it is unavailable", async () => {
    const { inner, store } = broken({ lose: "request" });
    await expect(store.acquire(request("a"))).rejects.toThrow(StoreUnavailableError);
    expect(await heldIds(inner)).toEqual([]);
  });

  test("a lost reply is a request that reached the store", async () => {
    const { inner, store } = broken({ lose: "reply" });
    await expect(store.acquire(request("a"))).rejects.toThrow(StoreUnavailableError);
    expect(await heldIds(inner)).toEqual(["a"]);
  });

  test.each(["request", "reply"] as const)("a caller whose %s is lost can be left hanging", async (lose) => {
    const { inner, store, clock } = broken({ lose, hang: true });
    const pending = store.acquire(request("a"));
    await clock.advance(86_400_000);
    expect(await stateOf(pending)).toBe("pending");
    await inner.close();
  });

  test("an error of the plan's own fails the call before the store sees it", async () => {
    const error = new HoldfastError("UNAUTHORIZED", "Not you.");
    const { inner, store } = broken({ error });
    await expect(store.acquire(request("a"))).rejects.toBe(error);
    expect(await heldIds(inner)).toEqual([]);
  });

  test("an error can take the place of a reply", async () => {
    const error = new Error("connection reset");
    const { inner, store } = broken({ lose: "reply", error });
    await expect(store.acquire(request("a"))).rejects.toBe(error);
    expect(await heldIds(inner)).toEqual(["a"]);
  });

  test("a call is delayed before and after it reaches the store, on the clock that was given", async () => {
    const { clock, inner, store } = broken({ beforeMs: 100, afterMs: 50 });
    const pending = store.acquire(request("a"));
    await clock.advance(99);
    expect(await heldIds(inner)).toEqual([]);
    await clock.advance(1);
    expect(await heldIds(inner)).toEqual(["a"]);
    await clock.advance(49);
    expect(await stateOf(pending)).toBe("pending");
    await clock.advance(1);
    expect((await pending).state).toBe("held");
  });

  test("a delayed rejection stays handled until it is told", async () => {
    const { clock, store } = broken({ afterMs: 50 });
    const pending = store.acquire(request(""));
    await clock.advance(10);
    expect(await stateOf(pending)).toBe("pending");
    await clock.advance(40);
    await expect(pending).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  test("a repeated call reaches the store twice, and the caller sees the first answer", async () => {
    const { clock, inner, store } = broken({ repeatAfterMs: 0 }, "release");
    await store.acquire(request("a"));
    await inner.acquire(request("b", { wait: true }));
    expect(await store.release([{ key: "k", id: "a" }])).toEqual([true]);
    await clock.advance(0);
    expect(await heldIds(inner)).toEqual(["b"]);
  });

  test("a late copy of an acquire brings back what was released in between", async () => {
    const { clock, inner, store } = broken({ repeatAfterMs: 100 });
    await store.acquire(request("a"));
    await store.release([request("a")]);
    expect(await heldIds(inner)).toEqual([]);
    await clock.advance(100);
    expect(await heldIds(inner)).toEqual(["a"]);
  });

  async function pushed(fault: Fault | undefined) {
    const { clock, store } = broken(fault, "push");
    const told: (readonly ClaimRef[])[] = [];
    const unsubscribe = store.onGrant("waiter", (refs) => told.push(refs));
    await store.acquire(request("a"));
    await store.acquire(request("b", { wait: true, owner: "waiter" }));
    await store.release([request("a")]);
    await settled();
    return { clock, told, unsubscribe };
  }

  test("pushes are passed on, lost, delayed or repeated", async () => {
    expect((await pushed(undefined)).told).toEqual([[{ key: "k", id: "b", fence: expect.any(BigInt) }]]);
    expect((await pushed({ lose: "request" })).told).toEqual([]);
    expect((await pushed({ lose: "reply" })).told).toEqual([]);
    const delayed = await pushed({ beforeMs: 30, afterMs: 20 });
    await delayed.clock.advance(49);
    expect(delayed.told).toEqual([]);
    await delayed.clock.advance(1);
    expect(delayed.told).toHaveLength(1);
    const repeated = await pushed({ repeatAfterMs: 10 });
    expect(repeated.told).toHaveLength(1);
    await repeated.clock.advance(10);
    expect(repeated.told).toHaveLength(2);
  });

  test("a delayed push does not arrive after its listener has unsubscribed", async () => {
    const { clock, told, unsubscribe } = await pushed({ afterMs: 50 });
    unsubscribe();
    await clock.advance(50);
    expect(told).toEqual([]);
  });

  test("a client gets through a partition that ends in time", async () => {
    const clock = new ManualClock();
    let partitioned = true;
    const store = faultyStore(
      memoryStore({ clock }),
      () => (partitioned ? { lose: "request", hang: true } : undefined),
      { clock },
    );
    const locks = createLocks(store, { clock });
    const pending = locks.mutex("k").acquire();
    await clock.advance(2_000);
    expect(await stateOf(pending)).toBe("pending");
    partitioned = false;
    await clock.advance(2_000);
    expect((await pending).held).toBe(true);
    await locks.close();
  });
});
