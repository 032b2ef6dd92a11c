import { memoryStore, type Store } from "holdfast";
import { ManualClock, type OpenOptions, type StoreHarness, storeContract } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { brokenStores } from "./broken-stores.ts";
import { runContract } from "./collecting-runner.ts";
import { toldBy } from "./told-by.ts";

type Make = (options: OpenOptions & { readonly clock: ManualClock }) => Store;

function harnessOf(make: Make, over: Partial<StoreHarness> = {}): StoreHarness {
  return {
    name: "store",
    shared: false,
    async open(options) {
      const clock = new ManualClock();
      const store = make({ ...options, clock });
      return {
        clock,
        store: async () => store,
        sleep: (ms) => clock.advance(ms),
        close: () => store.close(),
      };
    },
    ...over,
  };
}

const run = (harness: StoreHarness) => runContract((runner) => storeContract(harness, runner));

describe("the contract suite", () => {
  test("passes an intact store, and skips only what a store in memory cannot do", async () => {
    const { passed, skipped, failed } = await run(harnessOf(memoryStore));
    expect(failed).toEqual([]);
    expect(skipped).toEqual([
      "closing: closing one instance leaves the claims and the other instances as they are",
    ]);
    expect(passed.length).toBeGreaterThan(100);
  });

  const names = Object.keys(brokenStores) as (keyof typeof brokenStores)[];
  test.each(names)("tells a store where %s", async (name) => {
    const { failed } = await run(harnessOf(brokenStores[name]));
    console.log(`${name}: ${failed.length} failed\n${failed.map((each) => `  ${each}`).join("\n")}`);
    expect(failed).toContain(toldBy[name]);
  });

  test("skips semaphores, and shows it, where a store does not count", async () => {
    const countless = harnessOf((options) => without("counts", memoryStore(options)), { counts: false });
    const { skipped, failed } = await run(countless);
    expect(failed).toEqual([]);
    expect(skipped.filter((name) => /semaphore|weight|permits|limit/.test(name)).length).toBeGreaterThan(5);
  });

  test("skips full queues, and shows it, where a harness cannot bound them", async () => {
    const unbounded = harnessOf(({ clock }) => memoryStore({ clock }), { bounded: false });
    const { skipped, failed } = await run(unbounded);
    expect(failed).toEqual([]);
    expect(skipped.filter((name) => name.includes("full queue"))).toHaveLength(2);
  });

  test("fails a harness that says something else than its store", async () => {
    const { failed } = await run(harnessOf(memoryStore, { counts: false }));
    expect(failed).toContain("the harness tells the truth about the store");
  });
});

function without(flag: "counts", store: Store): Store {
  return new Proxy(store, {
    get(target, name) {
      if (name === flag) return false;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
