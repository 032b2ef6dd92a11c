import { type KeyStatus, type LookQuery, memoryStore, type Store } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { KeyFeed, type Watched } from "../../src/server/key-feed.ts";
import { Scheduler } from "../../src/server/scheduler.ts";
import { claimRequest } from "../record/claim-request.ts";

const ROUND_MS = 500;

/** A feed over a store in memory, with time that stands still, and what it has looked at. */
class World {
  readonly clock = new ManualClock();
  readonly store: Store = memoryStore({ clock: this.clock });
  readonly looks: LookQuery[] = [];
  readonly feed = new KeyFeed(
    (query) => {
      this.looks.push(query);
      return this.answer(query);
    },
    new Scheduler(),
    this.clock,
  );
  answer = (query: LookQuery) => this.store.look(query);

  async hold(...keys: string[]): Promise<void> {
    for (const key of keys) await this.store.acquire(claimRequest("i", { key, ttlMs: 86_400_000 }));
  }

  async free(...keys: string[]): Promise<void> {
    await this.store.release(keys.map((key) => ({ key, id: "i", token: "i" })));
  }

  watch(watched: Watched): Watcher {
    return new Watcher(this.feed, watched);
  }

  /** Lets rounds pass, and all events be taken. */
  async rounds(count: number): Promise<void> {
    await this.quiet();
    for (let round = 0; round < count; round++) {
      await this.clock.advance(ROUND_MS);
      await this.quiet();
    }
  }

  /** Work is spread over turns of the event loop. */
  async quiet(turns = 300): Promise<void> {
    for (let turn = 0; turn < turns; turn++) await this.clock.advance(0);
  }
}

/** Somebody who watches, and takes every event at once unless told to stop. */
class Watcher {
  readonly told: string[] = [];
  readonly view = new Map<string, number>();
  failure: unknown;
  #stopped: Promise<void> = Promise.resolve();
  #goOn: () => void = () => {};
  readonly #over = new AbortController();

  constructor(feed: KeyFeed, watched: Watched) {
    void this.#take(feed, watched).catch((error: unknown) => {
      this.failure = error;
    });
  }

  async #take(feed: KeyFeed, watched: Watched): Promise<void> {
    for await (const { status } of feed.watch(watched, this.#over.signal)) {
      this.#see(status);
      await this.#stopped;
    }
  }

  #see(status: KeyStatus | undefined): void {
    this.told.push(status === undefined ? "all" : `${status.key} ${status.heldCount}`);
    if (status === undefined) return;
    if (status.heldCount === 0) this.view.delete(status.key);
    else this.view.set(status.key, status.heldCount);
  }

  stop(): void {
    this.#goOn();
    this.#stopped = new Promise((resolve) => {
      this.#goOn = resolve;
    });
  }

  goOn(): void {
    this.#goOn();
  }

  leave(): void {
    this.#over.abort();
  }

  /** The events since the previous call. */
  news(): string[] {
    return this.told.splice(0);
  }
}

describe("what is told", () => {
  test("what there is, then that it was all, then every change", async () => {
    const world = new World();
    await world.hold("a/1", "a/2", "b/1");
    const [prefix, key, free] = [{ prefix: "a/" }, { key: "a/1" }, { key: "c" }].map((watched) =>
      world.watch(watched),
    );
    await world.rounds(2);
    expect(prefix!.news()).toEqual(["a/1 1", "a/2 1", "all"]);
    expect(key!.news()).toEqual(["a/1 1", "all"]);
    expect(free!.news()).toEqual(["c 0", "all"]);
    await world.free("a/1");
    await world.hold("a/3", "c");
    await world.rounds(1);
    expect(prefix!.news().sort()).toEqual(["a/1 0", "a/3 1"]);
    expect(key!.news()).toEqual(["a/1 0"]);
    expect(free!.news()).toEqual(["c 1"]);
    await world.rounds(3);
    expect([prefix!, key!, free!].flatMap((watcher) => watcher.news())).toEqual([]);
  });

  test("one who comes later is told what there is now, and nothing of what was free by then", async () => {
    const world = new World();
    await world.hold("a/1", "a/2");
    const first = world.watch({ prefix: "a/" });
    await world.rounds(1);
    await world.free("a/1");
    await world.rounds(1);
    const [second, narrow, one] = [{ prefix: "a/" }, { prefix: "a/2" }, { key: "a/1" }].map((watched) =>
      world.watch(watched),
    );
    await world.rounds(1);
    expect(second!.news()).toEqual(["a/2 1", "all"]);
    expect(narrow!.news()).toEqual(["a/2 1", "all"]);
    expect(one!.news()).toEqual(["a/1 0", "all"]);
    expect(first.news()).toEqual(["a/1 1", "a/2 1", "all", "a/1 0"]);
  });

  test("a slow reader hears of the latest state of each key only", async () => {
    const world = new World();
    await world.hold("a/1", "a/2");
    const slow = world.watch({ prefix: "a/" });
    slow.stop();
    await world.rounds(1);
    expect(slow.news()).toEqual(["a/1 1"]);
    for (let n = 0; n < 5; n++) {
      await world.free("a/2");
      await world.rounds(1);
      await world.hold("a/2");
      await world.rounds(1);
    }
    slow.goOn();
    await world.rounds(1);
    expect([...slow.view.keys()].sort()).toEqual(["a/1", "a/2"]);
    // The free states in between are gone or told, but the five grants are told as one.
    expect(slow.told.filter((told) => told === "a/2 1")).toHaveLength(1);
  });

  test("one that fell behind more keys than are kept is told to watch again", async () => {
    const world = new World();
    const keys = Array.from({ length: 9_000 }, (_, n) => `a/${n}`);
    await world.hold("a/");
    const slow = world.watch({ prefix: "a/" });
    slow.stop();
    const quick = world.watch({ prefix: "a/" });
    for (let n = 0; n < 3; n++) {
      await world.hold(...keys);
      await world.rounds(2);
      await world.free(...keys);
      await world.rounds(2);
    }
    expect(quick.failure).toBeUndefined();
    slow.goOn();
    await world.rounds(1);
    expect(slow.failure).toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("a failure of the store ends the watches of the keys that it is about, and no others", async () => {
    const world = new World();
    const [a, b] = [world.watch({ prefix: "a/" }), world.watch({ prefix: "b/" })];
    await world.rounds(1);
    world.answer = (query) =>
      "prefix" in query && query.prefix === "a/"
        ? Promise.reject(new Error("down"))
        : world.store.look(query);
    await world.rounds(1);
    world.answer = (query) => world.store.look(query);
    await world.hold("b/1");
    await world.rounds(1);
    expect(a.failure).toMatchObject({ message: "down" });
    expect(b.news()).toEqual(["all", "b/1 1"]);
    const again = world.watch({ prefix: "a/" });
    await world.rounds(1);
    expect(again.news()).toEqual(["all"]);
  });

  test("too many keys end the watch that asks for them, and not one that asks for few of them", async () => {
    const world = new World();
    for (let n = 0; n < 10_001; n++) await world.hold(`a/${n}`);
    const wide = world.watch({ prefix: "a/" });
    const narrow = world.watch({ prefix: "a/77" });
    await world.rounds(3);
    expect(wide.failure).toMatchObject({ code: "UNSUPPORTED" });
    expect(narrow.failure).toBeUndefined();
    expect(narrow.view.size).toBe(111);
  });

  test("whoever comes and goes, all have the same view in the end", async () => {
    for (let seed = 1; seed <= 20; seed++) {
      const world = new World();
      let state = seed;
      const random = (below: number) => {
        state = (state * 48_271) % 2_147_483_647;
        return state % below;
      };
      const anyKey = () => `${"ab"[random(2)]}/${random(4)}/${random(4)}`;
      const anyWatched = () => {
        const key = anyKey();
        return random(3) === 0 ? { key } : { prefix: key.slice(0, random(6)) };
      };
      let watching: { watched: Watched; watcher: Watcher }[] = [];
      for (let step = 0; step < 60; step++) {
        const [one] = watching.slice(random(watching.length + 1));
        const kind = random(8);
        if (kind < 3) await world.hold(anyKey());
        else if (kind < 5) await world.free(anyKey());
        else if (kind === 5 && watching.length < 6) {
          const watched = anyWatched();
          watching.push({ watched, watcher: world.watch(watched) });
        } else if (one !== undefined && kind === 6) one.watcher.stop();
        else if (one !== undefined) {
          one.watcher.goOn();
          if (random(3) === 0) {
            one.watcher.leave();
            watching = watching.filter((each) => each !== one);
          }
        }
        await world.clock.advance(random(400));
        await world.quiet(20);
      }
      for (const { watcher } of watching) watcher.goOn();
      await world.rounds(3);
      const { keys } = await world.store.look({ prefix: "", limit: 1_000, maxClaims: 0 });
      for (const { watched, watcher } of watching) {
        const isIn = (key: string) =>
          "key" in watched ? key === watched.key : key.startsWith(watched.prefix);
        const held = keys.map(({ key }) => key).filter(isIn);
        expect([seed, watched, [...watcher.view.keys()].sort()]).toEqual([seed, watched, held.sort()]);
        expect(watcher.told.filter((told) => told === "all")).toHaveLength(1);
      }
    }
  });
});

describe("what it costs", () => {
  /** Looks of ten rounds, with so many that watch. */
  async function looksOf(watched: readonly Watched[], keys: number): Promise<number> {
    const world = new World();
    for (let n = 0; n < keys; n++) await world.hold(`jobs/${n % 10}/${n}`);
    for (const each of watched) world.watch(each);
    await world.rounds(2);
    world.looks.length = 0;
    await world.rounds(10);
    return world.looks.length;
  }

  test("one listing a round, however many watch the same keys, parts of them, or single ones", async () => {
    const parts = Array.from({ length: 200 }, (_, n) => ({ prefix: "jobs/".slice(0, n % 6) }));
    const single = Array.from({ length: 200 }, (_, n) => ({ key: `jobs/${n % 10}/${n}` }));
    const pages = 3_000 / 200;
    const alone = await looksOf([{ prefix: "" }], 3_000);
    expect(alone).toBeGreaterThanOrEqual(10 * pages);
    expect(alone).toBeLessThanOrEqual(10 * (pages + 1));
    expect(await looksOf([...parts, ...single], 3_000)).toBe(alone);
  });

  test("one look a round at a key, however many watch it", async () => {
    expect(
      await looksOf(
        Array.from({ length: 200 }, () => ({ key: "jobs/1/1" })),
        10,
      ),
    ).toBe(10);
  });

  test("nothing when nobody watches any more", async () => {
    const world = new World();
    const watchers = [world.watch({ prefix: "a" }), world.watch({ key: "a" })];
    await world.rounds(2);
    for (const watcher of watchers) watcher.leave();
    await world.rounds(2);
    world.looks.length = 0;
    await world.rounds(10);
    expect(world.looks).toEqual([]);
    expect(world.clock.pendingTimers).toBe(0);
  });

  test("a store that takes long is left alone for four times as long", async () => {
    const world = new World();
    world.answer = async (query) => {
      world.clock.block(1_000);
      return world.store.look(query);
    };
    world.watch({ key: "a" });
    await world.quiet();
    expect(world.looks).toHaveLength(1);
    await world.clock.advance(3_900);
    expect(world.looks).toHaveLength(1);
    await world.clock.advance(200);
    expect(world.looks).toHaveLength(2);
  });
});
