/** Servers that answer a call, and can say nothing of the claims in it. */
import { createLocks, memoryStore, type QuorumMember, StoreUnavailableError } from "holdfast";
import { quorumStore, redlockStore } from "holdfast/redlock";
import { ManualClock } from "holdfast/testing";
import { Redis } from "ioredis";
import { describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, startRedis } from "../../engines/redis.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { storeOver } from "../store-over.ts";

/** What servers say that are down: nothing, or of each claim by itself that it failed, as where a heartbeat goes out in halves. */
type Words = "failures" | "nothing";

function threeServers(words: Words = "failures") {
  const clock = new ManualClock();
  const state = { isDown: false, renewals: 0 };
  const members = [1, 2, 3].map((): QuorumMember => {
    const node = memoryStore({ clock });
    const store = storeOver(node, {
      async renew(refs) {
        state.renewals++;
        if (!state.isDown) return node.renew(refs);
        if (words === "nothing") return [];
        return refs.map(() => ({ state: "failed", error: new StoreUnavailableError("down") }));
      },
    });
    return { ...store, confirm: node.confirm.bind(node) };
  });
  return { clock, state, members };
}

describe("quorum: a majority that can say nothing of a claim", () => {
  test("has not said that it waits", async () => {
    const { clock, state, members } = threeServers();
    const store = quorumStore(members, { clock });
    const keys = ["a", "b"];
    for (const key of keys) await store.acquire(claimRequest(`holder-${key}`, { key }));
    const waiters = keys.map((key) => claimRequest(`waiter-${key}`, { key, wait: true }));
    for (const waiter of waiters) expect(await store.acquire(waiter)).toMatchObject({ state: "waiting" });
    state.isDown = true;
    const failed = (key: string) => ({ state: "failed", error: { code: "STORE_UNAVAILABLE", key } });
    expect(await store.renew(waiters)).toMatchObject(keys.map(failed));
    state.isDown = false;
    expect(await store.renew(waiters)).toMatchObject([{ state: "waiting" }, { state: "waiting" }]);
  });

  // (1) Nobody was heard about the claims. (2) They are told to wait, for no time at all. (3) They ask again at once, and the patience with an outage
  // begins anew each time.
  test.each<Words>(["failures", "nothing"])(
    "is given up by those who wait, and not asked in a loop: %s",
    async (words) => {
      const { clock, state, members } = threeServers(words);
      const holder = createLocks(quorumStore(members, { clock }), { clock, closeStore: false });
      const locks = createLocks(quorumStore(members, { clock }), {
        ...{ clock, closeStore: false, onWarning: () => {} },
      });
      const failures: unknown[] = [];
      for (const key of ["a", "b"]) {
        await holder.mutex(key, { ttlMs: 600_000 }).acquire();
        const waiting = locks.mutex(key, { ttlMs: 3_000 }).acquire({ waitMs: 600_000 });
        waiting.catch((error: unknown) => failures.push(error));
      }
      await clock.advance(100);
      state.isDown = true;
      state.renewals = 0;
      await clock.advance(10_000);
      expect(failures).toMatchObject([{ code: "STORE_UNAVAILABLE" }, { code: "STORE_UNAVAILABLE" }]);
      expect(locks.stats()).toMatchObject({ storeAvailable: false });
      expect(state.renewals).toBeLessThan(300);
    },
  );

  test.skipIf(!canRunRedis())(
    "says so where its servers have no memory left",
    { timeout: 30_000 },
    async () => {
      const servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
      onTestFinished(async () => {
        for (const server of servers) await server.stop();
      });
      const clients = servers.map(({ port }) => new Redis(port, "127.0.0.1"));
      onTestFinished(() => {
        for (const client of clients) client.disconnect();
      });
      const store = redlockStore(clients);
      // So many that a heartbeat goes to each server in two halves.
      const keys = Array.from({ length: 40 }, (_, nth) => `key-${nth}`);
      const claims = (name: string, wait: boolean) =>
        keys.map((key) => claimRequest(`${name}-${key}`, { key, wait, ttlMs: 60_000 }));
      await Promise.all(claims("holder", false).map((claim) => store.acquire(claim)));
      const waiters = claims("waiter", true);
      await Promise.all(waiters.map((claim) => store.acquire(claim)));
      for (const server of servers) await server.command("CONFIG", "SET", "maxmemory", 1);
      const answers = await store.renew(waiters);
      expect(new Set(answers.map(({ state }) => state))).toEqual(new Set(["failed"]));
      for (const server of servers) await server.command("CONFIG", "SET", "maxmemory", 0);
      await store.close();
    },
  );
});
