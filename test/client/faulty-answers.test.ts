import { createLocks, HoldfastError, memoryStore, type RenewAnswer, type Store } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";

function open() {
  const clock = new ManualClock();
  const store = memoryStore({ clock });
  const locks = createLocks(store, { clock, onWarning: () => {} });
  return { clock, store, locks };
}

/** The store answers with this to one call of a verb, or throws where it is a function that does. */
function once(store: Store, verb: "acquire" | "renew" | "release", answer: () => unknown): void {
  const real = store[verb];
  store[verb] = () => {
    store[verb] = real as never;
    return answer() as never;
  };
}

function throwing(): never {
  throw new Error("not connected");
}

const nonsense: readonly (readonly [string, () => unknown])[] = [
  ["throws", throwing],
  ["returns nothing", () => undefined],
  ["answers with nothing", async () => undefined],
  ["answers with too little", async () => []],
  ["answers with an unknown state", async () => [{ state: "asleep" }]],
  ["answers with no time", async () => [{ state: "held", fence: 1n, acquiredAtMs: 0 }]],
  ["answers with no number", async () => [{ state: "held", fence: 1n, expiresInMs: Number.NaN }]],
];

test.each(nonsense)("a heartbeat to a store that %s is repeated", async (_, answer) => {
  const { clock, store, locks } = open();
  const lease = await locks.mutex("k", { ttlMs: 3_000 }).acquire();
  const other = await locks.mutex("other", { ttlMs: 3_000 }).acquire();
  once(store, "renew", answer);
  await clock.advance(10_000);
  expect([lease.held, other.held]).toEqual([true, true]);
});

test("a heartbeat that fails for one lease is repeated for that one, and costs no other", async () => {
  const { clock, store, locks } = open();
  const lost = await locks.mutex("lost", { ttlMs: 3_000 }).acquire();
  const kept = await locks.mutex("kept", { ttlMs: 3_000 }).acquire();
  const renew = store.renew.bind(store);
  const error = new HoldfastError("STORE_FAILURE", "damaged", { key: "lost" });
  let damaged = true;
  store.renew = async (refs) => {
    const answers = await renew(refs);
    return answers.map((answer, index) =>
      damaged && refs[index]?.key === "lost" ? { state: "failed", error } : answer,
    );
  };
  await clock.advance(2_000);
  damaged = false;
  await clock.advance(10_000);
  expect([lost.held, kept.held]).toEqual([true, true]);

  damaged = true;
  await clock.advance(10_000);
  expect([lost.held, kept.held]).toEqual([false, true]);
  expect(lost.signal.reason).toMatchObject({ code: "LEASE_LOST", reason: "expired", cause: error });
});

test.each(nonsense.slice(1))(
  "an acquire of a store that %s fails and leaves nothing behind",
  async (_, answer) => {
    const { clock, store, locks } = open();
    once(store, "acquire", async () => ((await answer()) as RenewAnswer[] | undefined)?.[0]);
    const failed = locks.mutex("k").acquire({ id: "mine" });
    await expect(failed).rejects.toMatchObject({ code: "STORE_FAILURE" });
    await clock.advance(60_000);
    const lease = await locks.mutex("k").acquire({ id: "mine" });
    await lease.release();
  },
);

test("an acquire of a store that throws fails and leaves nothing behind", async () => {
  const { clock, store, locks } = open();
  once(store, "acquire", throwing);
  const failed = locks.mutex("k").acquire({ id: "mine" });
  await expect(failed).rejects.toMatchObject({ code: "STORE_FAILURE" });
  await clock.advance(60_000);
  expect(await locks.inspect("k")).toMatchObject({ heldCount: 0, waitingCount: 0 });
});

test.each(nonsense.slice(1, 4))("a release by a store that %s says so", async (_, answer) => {
  const { store, locks } = open();
  const lease = await locks.mutex("k").acquire();
  once(store, "release", answer);
  expect(await lease.release()).toBe(false);
});

test("a release that a store throws at is an error of that release alone", async () => {
  const { clock, store, locks } = open();
  const lease = await locks.mutex("k").acquire();
  once(store, "release", throwing);
  await expect(lease.release()).rejects.toMatchObject({ code: "STORE_FAILURE" });
  // What a lost lease leaves behind is released in the background, where nobody could catch an error.
  const lost = await locks.mutex("lost", { ttlMs: 1_000, renew: false }).acquire();
  once(store, "release", throwing);
  await clock.advance(1_000);
  expect(lost.held).toBe(false);
});
