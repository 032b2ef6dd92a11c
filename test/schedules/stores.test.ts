/** Schedules and elections stand on the store contract alone: the same few things happen on every kind of store. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Locks, memoryStore, type Store, systemClock } from "holdfast";
import { casStore } from "holdfast/cas";
import { fileStore } from "holdfast/file";
import { redisStore } from "holdfast/redis";
import { quorumStore } from "holdfast/redlock";
import { remoteStore } from "holdfast/remote";
import { faultyStore } from "holdfast/testing";
import { Redis } from "ioredis";
import { describe, expect, type TestContext, test } from "vitest";
import { MapDatabase, mapDriver } from "../../examples/driver/map-driver.ts";
import { until } from "../engines/engine.ts";
import { startRedis } from "../engines/redis.ts";
import { startLockServer } from "../server/lock-server.ts";

type Open = () => Store;
type OnEnd = (end: () => unknown) => void;

type Prepare = (onEnd: OnEnd) => Promise<Open> | Open;

const kinds: Readonly<Record<string, Prepare>> = {
  "compare-and-swap": () => {
    const database = new MapDatabase();
    return () => casStore(mapDriver(database));
  },
  file: (onEnd) => {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-schedule-stores-"));
    onEnd(() => rmSync(folder, { recursive: true, force: true }));
    return () => fileStore(folder);
  },
  redis: async (onEnd) => {
    const server = await startRedis();
    onEnd(() => server.stop());
    return () => {
      const client = new Redis(server.port, "127.0.0.1");
      onEnd(() => client.disconnect());
      return redisStore(client);
    };
  },
  "a majority of three, one of them down": () => {
    const members = [memoryStore(), memoryStore(), faultyStore(memoryStore(), () => ({ lose: "request" }))];
    return () => sharing(quorumStore(members));
  },
  "a lock server": async (onEnd) => {
    const server = await startLockServer({ store: memoryStore() });
    onEnd(() => server.stop({ graceMs: 0 }));
    return () => remoteStore(server.url);
  },
};

/** A store whose members others go on using when it is closed. */
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
  const open = await prepare((end) => ends.push(end));
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
  test("each tick runs once, and everybody can read that", { timeout: 60_000 }, async ({
    onTestFinished,
  }) => {
    await eachTickRunsOnce(await threeClients(prepare, onTestFinished));
  });

  test("one leads, everybody sees who, and the next one leads when it resigns", {
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
      await until("somebody leads", async () => leading.size === 1);
      const [leader = ""] = leading;
      for (const election of elections) expect((await election.leader())?.info).toBe(leader);
      await elections[Number(leader)]?.resign();
    }
    await Promise.all(campaigns);
    expect(most).toBe(1);
    expect(await elections[0]?.leader()).toBeNull();
  });

  test("something is done once in a window", { timeout: 60_000 }, async ({ onTestFinished }) => {
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
