/** Calls that come from a body which holds the key already. */
import v8 from "node:v8";
import { createLocks, type Lease, memoryStore } from "holdfast";
import { settled } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { Body } from "../../src/client/body.ts";
import { deferred } from "../../src/platform/deferred.ts";
import { Scene, TTL_MS } from "./scene.ts";

/** Counts what is still referred to. Since Node 20.13; its types do not have it yet. */
const { queryObjects } = v8 as { queryObjects?: (of: unknown, as: { format: "count" }) => number };

const deadlock = { state: "rejected", error: { code: "DEADLOCK", key: "k" } };

/** What a call inside a body comes to, without the body waiting for it. */
async function outcomeOf<T>(scene: Scene, call: () => Promise<T>) {
  const outcome = scene.begin(call());
  await scene.clock.advance(0);
  return outcome;
}

describe("a call that would wait for the body that it comes from", () => {
  test.each<[string, (scene: Scene) => Promise<unknown>]>([
    ["run", (scene: Scene) => scene.locks.mutex("k").run(() => "ran")],
    ["acquire", (scene: Scene) => scene.locks.mutex("k").acquire()],
    ["an acquire that does not wait", (scene: Scene) => scene.locks.mutex("k").acquire({ waitMs: 0 })],
    [
      "a group",
      (scene: Scene) => scene.locks.all([scene.locks.mutex("j"), scene.locks.mutex("k")]).run(() => "ran"),
    ],
    ["another side of a reader-writer lock", (scene: Scene) => scene.locks.rwLock("k").read.acquire()],
    [
      "another client over the same store",
      (scene: Scene) => {
        const other = createLocks(scene.locks.store, { clock: scene.clock, closeStore: false });
        return other.mutex("k").acquire();
      },
    ],
    ["a campaign", (scene: Scene) => scene.locks.election("k").lead(() => {})],
  ])("is refused at once: %s", async (_, call) => {
    const scene = new Scene();
    await scene.locks.mutex("k").run(async () => {
      expect(await outcomeOf(scene, () => call(scene))).toMatchObject(deadlock);
      expect(scene.sent("acquire").filter(({ args: [{ key }] }) => key === "k")).toHaveLength(1);
    });
    expect([(await scene.status("k")).heldCount, (await scene.status("j")).heldCount]).toEqual([0, 0]);
  });

  test.each([
    ["tryRun", (scene: Scene, body: () => Promise<void>) => scene.locks.mutex("k").tryRun(body)],
    [
      "a group",
      (scene: Scene, body: () => Promise<void>) => scene.locks.all([scene.locks.mutex("k")]).run(body),
    ],
    [
      "a group's tryRun",
      (scene: Scene, body: () => Promise<void>) => scene.locks.all([scene.locks.mutex("k")]).tryRun(body),
    ],
    [
      "once",
      (scene: Scene, body: () => Promise<void>) => scene.locks.once("k", { windowMs: 1_000 }).tryRun(body),
    ],
    [
      "a body of another key between them",
      (scene: Scene, body: () => Promise<void>) =>
        scene.locks.mutex("k").run(() => scene.locks.mutex("j").run(body)),
    ],
    [
      "an election",
      async (scene: Scene, body: () => Promise<void>) => {
        const election = scene.locks.election("k");
        await election.lead(async () => {
          await body();
          void election.resign();
        });
      },
    ],
  ])("is refused also within %s", async (_, within) => {
    const scene = new Scene();
    let ran = false;
    await within(scene, async () => {
      expect(await outcomeOf(scene, () => scene.locks.mutex("k").acquire())).toMatchObject(deadlock);
      ran = true;
    });
    expect(ran).toBe(true);
  });

  test("is refused within the body of a schedule", async () => {
    const scene = new Scene();
    const outcomes: unknown[] = [];
    const schedule = scene.locks.schedule("job", "* * * * * *", () =>
      scene.locks.mutex("k").run(async () => {
        outcomes.push(await outcomeOf(scene, () => scene.locks.mutex("k").run(() => {})));
      }),
    );
    await scene.clock.advance(1_500);
    await schedule.stop();
    expect(outcomes[0]).toMatchObject(deadlock);
  });

  test("is contention for a try", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k");
    await lock.run(async () => {
      expect(await lock.tryAcquire()).toBeNull();
      expect(await lock.tryRun(() => "ran")).toEqual({ ran: false, reason: "contended" });
    });
  });
});

describe("a call that would not wait for its own body", () => {
  test("goes on when the body has ended that started it", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k");
    let started: Promise<string> | undefined;
    await lock.run(() => {
      started = settled().then(() => lock.run(() => "ran"));
    });
    expect(await started).toBe("ran");
  });

  test("waits for others when the body has given its lease back or lost it", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS });
    await lock.run(async (lease) => {
      await lease.release();
      expect(await lock.run(() => "ran")).toBe("ran");
    });
    await lock.run(async (lease) => {
      await scene.locks.forceRelease("k", lease.id);
      await scene.clock.advance(TTL_MS);
      expect(lease.held).toBe(false);
      expect(await lock.run(() => "ran")).toBe("ran");
    });
  });

  test("is refused while the lease of the body is being won again, as that would come first", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS, reacquire: true });
    await lock.run(async (lease) => {
      await scene.locks.forceRelease("k", lease.id);
      scene.keep(await scene.rival().mutex("k").acquire());
      await scene.clock.advance(TTL_MS);
      expect(lease.held).toBe(false);
      expect(await outcomeOf(scene, () => lock.acquire())).toMatchObject(deadlock);
    });
  });

  test("is served beside its body where the limit allows both", async () => {
    const scene = new Scene();
    const gpus = scene.locks.semaphore("k", 4);
    await gpus.run(
      async () => {
        await gpus.run(async () => {
          expect((await scene.status("k")).heldWeight).toBe(4);
          // One more would wait for both.
          expect(await outcomeOf(scene, () => gpus.acquire())).toMatchObject(deadlock);
        });
        expect(await outcomeOf(scene, () => gpus.acquire({ permits: 2 }))).toMatchObject(deadlock);
      },
      { permits: 3 },
    );
  });

  test("reads within a reader, but not behind a writer that waits for that reader", async () => {
    const scene = new Scene();
    const { read, write } = scene.locks.rwLock("k");
    await read.run(async () => {
      expect(await read.run(() => "read")).toBe("read");
      expect(await outcomeOf(scene, () => write.acquire())).toMatchObject(deadlock);
      const writing = scene.begin(scene.rival().rwLock("k").write.acquire());
      await scene.clock.advance(0);
      expect(await outcomeOf(scene, () => read.acquire())).toMatchObject(deadlock);
      expect((await scene.status("k")).waitingCount).toBe(1);
      expect(writing.state).toBe("pending");
    });
  });

  test("waits for a body that happens to have been served when it came", async () => {
    // The body's acquire sets the client's timer. A loss that this timer finds is told to listeners that are no part of the body.
    const scene = new Scene();
    const lock = scene.locks.mutex("k");
    const other = await scene.locks.mutex("other", { ttlMs: TTL_MS, maxHoldMs: 500 }).acquire();
    let asked: ReturnType<Scene["begin"]> | undefined;
    other.signal.addEventListener("abort", () => {
      asked = scene.begin(lock.acquire());
    });
    await lock.run(async () => {
      scene.keep(await scene.locks.mutex("short", { ttlMs: 100 }).acquire());
      await scene.clock.advance(600);
      expect(asked?.state).toBe("pending");
    });
    await scene.clock.advance(0);
    expect(asked?.state).toBe("fulfilled");
  });

  test.skipIf(queryObjects === undefined)(
    "keeps nothing of earlier bodies that each started the next one",
    async () => {
      const locks = createLocks(memoryStore());
      const count = () => queryObjects?.(Body, { format: "count" }) ?? 0;
      // Other tests of this process may have left some.
      const before = count();
      const last = deferred<number>();
      const start = (round: number): Promise<unknown> =>
        locks.mutex(`k${round}`).run(async () => {
          await settled();
          if (round === 50) last.resolve(count());
          else void start(round + 1);
          await settled();
        });
      void start(0);
      expect((await last.promise) - before).toBeLessThan(10);
      await locks.close({ graceMs: 1_000 });
    },
  );
});

describe("a reentrant lock", () => {
  const reentrant = { ttlMs: TTL_MS, reentrant: true };

  test("shares one claim and one fence with the bodies within, and is free when the last has ended", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", reentrant);
    await lock.run(async (outer) => {
      await lock.run(async (inner) => {
        expect([inner.fence, inner.id, inner.held]).toEqual([outer.fence, outer.id, true]);
        // Another lock object of the same key is as good.
        const third = await scene.locks.mutex("k", reentrant).tryAcquire();
        expect(third?.fence).toBe(outer.fence);
        expect(await third?.release()).toBe(true);
        expect(await third?.release()).toBe(false);
        expect([third?.held, third?.state.released]).toEqual([false, true]);
        expect(() => third?.assertHeld()).toThrow(expect.objectContaining({ code: "NOT_HELD" }));
        expect(await lock.tryRun(({ fence }) => fence)).toEqual({ ran: true, value: outer.fence });
      });
      expect(outer.held).toBe(true);
      expect(await scene.rival().mutex("k").tryAcquire()).toBeNull();
    });
    expect([scene.sent("acquire").length, scene.sent("release").length]).toEqual([1, 1]);
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("stays held for a lease that outlives the outermost body", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", reentrant);
    let kept: Lease | undefined;
    await lock.run(async () => {
      kept = await lock.acquire();
    });
    await scene.clock.advance(2 * TTL_MS);
    expect(kept?.held).toBe(true);
    expect(await scene.rival().mutex("k").tryAcquire()).toBeNull();
    expect(await kept?.release()).toBe(true);
    expect(await scene.rival().mutex("k").tryAcquire()).not.toBeNull();
  });

  test("is shared within groups, and by them", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", reentrant);
    const group = scene.locks.all([lock, scene.locks.mutex("j")]);
    await lock.run((outer) =>
      group.run(async (both) => {
        expect(both.lease("k").fence).toBe(outer.fence);
        expect(await lock.run(({ fence }) => fence)).toBe(outer.fence);
      }),
    );
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("is lost for all bodies at once", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", reentrant);
    await lock.run((outer) =>
      lock.run(async (inner) => {
        const watched: boolean[] = [];
        const watching = (async () => {
          for await (const { held } of inner.watch()) watched.push(held);
        })();
        await scene.locks.forceRelease("k", outer.id);
        await scene.clock.advance(TTL_MS);
        await watching;
        expect([outer.held, inner.held, watched.at(-1)]).toEqual([false, false, false]);
        expect([outer.signal.aborted, inner.signal.aborted]).toEqual([true, true]);
        // What is asked for now is another claim.
        expect(await lock.run(({ fence }) => fence > outer.fence)).toBe(true);
      }),
    );
  });

  test("tells a watcher of one lease when that lease is given back, and not the others", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", reentrant);
    await lock.run(async (outer) => {
      const inner = await lock.acquire();
      const watching = scene.begin(
        (async () => {
          const states = [];
          for await (const { held, released } of inner.watch()) states.push([held, released]);
          return states;
        })(),
      );
      await scene.clock.advance(0);
      await inner.release();
      await scene.clock.advance(0);
      expect(watching.value).toEqual([
        [true, false],
        [false, true],
      ]);
      expect(outer.state).toMatchObject({ held: true, released: false });
    });
  });

  test("covers what asks for less: a reader within a writer, fewer permits within more", async () => {
    const scene = new Scene();
    const { read, write } = scene.locks.rwLock("k", reentrant);
    await write.run((outer) => read.run(({ fence }) => expect(fence).toBe(outer.fence)));
    await read.run(async (outer) => {
      await read.run(({ fence }) => expect(fence).toBe(outer.fence));
      expect(await outcomeOf(scene, () => write.acquire())).toMatchObject(deadlock);
    });
    const permits = scene.locks.semaphore("k", 4, reentrant);
    await permits.run(
      async (outer) => {
        await permits.run(({ fence }) => expect(fence).toBe(outer.fence), { permits: 2 });
        expect(await outcomeOf(scene, () => permits.acquire({ permits: 3 }))).toMatchObject(deadlock);
      },
      { permits: 2 },
    );
  });

  test("is not shared with a lock that lacks the option, nor with another id", async () => {
    const scene = new Scene();
    const [plain, shared] = [scene.locks.mutex("k"), scene.locks.mutex("k", reentrant)];
    await plain.run(async () => {
      expect(await outcomeOf(scene, () => shared.acquire())).toMatchObject(deadlock);
    });
    await shared.run(async () => {
      expect(await outcomeOf(scene, () => plain.acquire())).toMatchObject(deadlock);
      expect(await outcomeOf(scene, () => shared.acquire({ id: "job-17" }))).toMatchObject(deadlock);
    });
    await shared.run((outer) => shared.run(({ id }) => expect(id).toBe(outer.id), { id: "job-17" }), {
      id: "job-17",
    });
  });

  test("is contended as ever for calls from elsewhere", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", reentrant);
    const lease = await lock.acquire();
    const waiting = scene.begin(lock.run(({ fence }) => fence > lease.fence));
    await scene.clock.advance(10);
    expect(waiting.state).toBe("pending");
    await lease.release();
    await scene.clock.advance(0);
    expect(waiting.value).toBe(true);
  });
});
