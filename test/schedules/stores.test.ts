/** Schedules, elections and once over stores that are peculiar: compare-and-swap, and a majority with a server down. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Locks, memoryStore, type Store, systemClock } from "holdfast";
import { casStore } from "holdfast/cas";
import { quorumStore } from "holdfast/redlock";
import { faultyStore } from "holdfast/testing";
import { describe, expect, type TestContext, test } from "vitest";
import { MapDatabase, mapDriver } from "../../examples/driver/map-driver.ts";
import { until } from "../engines/engine.ts";

type Open = () => Store;
type Prepare = () => Open;

const kinds: Readonly<Record<string, Prepare>> = {
  "compare-and-swap": () => {
    const database = new MapDatabase();
    return () => casStore(mapDriver(database));
  },
  "a majority of three, one of them down": () => {
    const members = [memoryStore(), memoryStore(), faultyStore(memoryStore(), () => ({ lose: "request" }))];
    return () => sharing(quorumStore(members));
  },
};

/** A store that leaves its members open, because other clients use them. */
function sharing(store: Store): Store {
  store.close = async () => {};
  return store;
}

/** Three clients, as many processes would be, whose clocks differ by up to two seconds. */
async function threeClients(
  prepare: Prepare,
  onTestFinished: TestContext["onTestFinished"],
): Promise<Locks[]> {
  const ends: (() => unknown)[] = [];
  onTestFinished(async () => {
    for (const end of ends.reverse()) await end();
  });
  const open = prepare();
  return [0, 1_000, -1_000].map((skewMs) => {
    const clock = { ...systemClock, wallMs: () => Date.now() + skewMs };
    const locks = createLocks(open(), { clock });
    ends.push(() => locks.close());
    return locks;
  });
}

async function eachTickRunsOnce(clients: readonly Locks[]): Promise<void> {
  const ticks: number[] = [];
  const schedules = clients.map((locks) =>
    locks.schedule("job", "* * * * * *", ({ tick }) => void ticks.push(tick.getTime()), {
      overlap: "queue",
      lateMs: 60_000,
    }),
  );
  await until("some ticks have run", async () => ticks.length >= 3);
  // Until the slowest clock has got there as well.
  await sleep(2_500);
  await Promise.all(schedules.map((schedule) => schedule.stop()));
  expect(new Set(ticks).size).toBe(ticks.length);
  for (const schedule of schedules) {
    const history = await schedule.history();
    expect(history.length).toBeGreaterThanOrEqual(3);
    expect(history.every(({ outcome }) => outcome === "completed")).toBe(true);
  }
}

test.concurrent("over a majority, where each client sees another two of three", {
  timeout: 60_000,
}, async ({ onTestFinished }) => {
  const members = [memoryStore(), memoryStore(), memoryStore()];
  let opened = 0;
  const open = () => {
    const missing = opened++ % 3;
    const seen = members.map((member, index) =>
      faultyStore(member, () => (index === missing ? { lose: "request" } : undefined)),
    );
    return sharing(quorumStore(seen));
  };
  await eachTickRunsOnce(await threeClients(() => open, onTestFinished));
});

describe.concurrent.each(Object.entries(kinds))("over %s", (_, prepare) => {
  test("each tick runs once, and every replica reads that", { timeout: 60_000 }, async ({
    onTestFinished,
  }) => {
    await eachTickRunsOnce(await threeClients(prepare, onTestFinished));
  });

  test("one candidate leads, all see it, and the next one leads when it resigns", {
    timeout: 60_000,
  }, async ({ onTestFinished }) => {
    const clients = await threeClients(prepare, onTestFinished);
    const elections = clients.map((locks) => locks.election("office", { ttlMs: 5_000 }));
    const leading = new Set<string>();
    let most = 0;
    const campaigns = elections.map((election, index) =>
      election.lead(
        async ({ signal }) => {
          leading.add(`${index}`);
          most = Math.max(most, leading.size);
          if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
          leading.delete(`${index}`);
        },
        { info: `${index}` },
      ),
    );
    for (let left = clients.length; left > 0; left--) {
      await until("a candidate leads", async () => leading.size === 1);
      const [leader = ""] = leading;
      for (const election of elections) expect((await election.leader())?.info).toBe(leader);
      await elections[Number(leader)]?.resign();
    }
    await Promise.all(campaigns);
    expect(most).toBe(1);
    expect(await elections[0]?.leader()).toBeNull();
  });

  test("a body runs once in a window", { timeout: 60_000 }, async ({ onTestFinished }) => {
    const clients = await threeClients(prepare, onTestFinished);
    const results = await Promise.all(
      clients.map((locks) => locks.once("mail", { windowMs: 60_000 }).tryRun(() => "sent")),
    );
    expect(results.filter(({ ran }) => ran)).toEqual([{ ran: true, value: "sent" }]);
    await clients[results.findIndex(({ ran }) => ran)]?.close();
    const left = clients[results.findIndex(({ ran }) => !ran)];
    expect(await left?.once("mail", { windowMs: 60_000 }).tryRun(() => "sent")).toMatchObject({ ran: false });
  });
});
