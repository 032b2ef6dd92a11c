import { type LookQuery, memoryStore, type Store } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { QueuePositions } from "../../src/server/queue-positions.ts";
import { Scheduler } from "../../src/server/scheduler.ts";
import { claimRequest } from "../record/claim-request.ts";

class World {
  readonly clock = new ManualClock();
  readonly store: Store = memoryStore({ clock: this.clock });
  readonly looks: LookQuery[] = [];
  readonly places = new QueuePositions(
    (query) => {
      this.looks.push(query);
      return this.store.look(query);
    },
    new Scheduler(),
    this.clock,
  );
  readonly told = new Map<string, string[]>();

  /** Somebody joins the queue, and follows its place. Returns what ends that. */
  async join(id: string, key = "k"): Promise<() => void> {
    await this.store.acquire(claimRequest(id, { key, ttlMs: 86_400_000 }));
    const told: string[] = [];
    this.told.set(id, told);
    return this.places.follow(key, id, (position, length) => told.push(`${position} of ${length}`));
  }

  async hold(key = "k"): Promise<void> {
    await this.store.acquire(claimRequest(`holder of ${key}`, { key, ttlMs: 86_400_000 }));
  }

  async release(id: string, key = "k"): Promise<void> {
    await this.store.release([{ key, id, token: id }]);
  }

  async pass(ms: number): Promise<void> {
    await this.clock.advance(ms);
    // Work is spread over turns of the event loop.
    for (let turn = 0; turn < 200; turn++) await this.clock.advance(0);
  }
}

describe("places in queues", () => {
  // (1) A claim waits. (2) The store grants it, which its client hears of only later. (3) The key is looked at.
  test("a claim that was granted or is gone is not told that it waits", async () => {
    const world = new World();
    await world.hold();
    for (const id of ["a", "b"]) await world.join(id);
    await world.pass(0);
    await world.release("holder of k");
    await world.pass(1_000);
    await world.release("b");
    await world.pass(1_000);
    expect(world.told.get("a")).toEqual(["1 of 1"]);
    expect(world.told.get("b")).toEqual(["1 of 1"]);
  });

  test("the first to wait hears of its place at once, and all hear of every change within a second", async () => {
    const world = new World();
    await world.hold();
    await world.join("a");
    await world.pass(0);
    expect(world.told.get("a")).toEqual(["1 of 1"]);
    await world.join("b");
    await world.pass(1_000);
    expect(world.told.get("a")).toEqual(["1 of 1", "1 of 2"]);
    expect(world.told.get("b")).toEqual(["2 of 2"]);
    await world.release("a");
    await world.pass(1_000);
    expect(world.told.get("b")).toEqual(["2 of 2", "1 of 1"]);
  });

  test("one look a key and second serves all its waiters", async () => {
    const world = new World();
    for (const key of ["k", "l"]) {
      await world.hold(key);
      for (let n = 0; n < 1_000; n++) await world.join(`${key} ${n}`, key);
    }
    await world.pass(1_000);
    world.looks.length = 0;
    for (let second = 0; second < 10; second++) {
      await world.release(`k ${second}`);
      await world.pass(1_000);
    }
    expect(world.looks.map((query) => "key" in query && query.key).sort()).toEqual([
      ...Array(10).fill("k"),
      ...Array(10).fill("l"),
    ]);
    expect(world.told.get("k 999")).toHaveLength(11);
    expect(world.told.get("l 999")).toEqual(["1000 of 1000"]);
  });

  test("nothing is looked at when nobody waits any more", async () => {
    const world = new World();
    await world.hold();
    const leave = await world.join("a");
    await world.pass(0);
    leave();
    await world.pass(1_000);
    world.looks.length = 0;
    await world.pass(10_000);
    expect(world.looks).toEqual([]);
    expect(world.clock.pendingTimers).toBe(0);
  });
});
