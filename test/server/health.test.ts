/** `/readyz` of a server whose store serves, and of a server whose store does not. */
import { memoryStore, type Store } from "holdfast";
import { redisStore } from "holdfast/redis";
import { remoteStore } from "holdfast/remote";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Health } from "../../src/server/health.ts";
import { canRunRedis, startRedis } from "../engines/redis.ts";
import { standaloneClients } from "../engines/redis-clients.ts";
import { claimRequest } from "../record/claim-request.ts";
import { startLockServer } from "./lock-server.ts";
import { jsonCall, jsonStreamCall, say } from "./raw-http.ts";

/** A server, and how it answers. */
async function statusOver(store: Store): Promise<() => Promise<number>> {
  const server = await startLockServer({ store });
  onTestFinished(() => server.stop({ graceMs: 0 }));
  return async () => (await fetch(`${server.url}/readyz`)).status;
}

describe("a server is ready", () => {
  test("when its store grants locks, of which none is left behind", async () => {
    const store = memoryStore();
    const [one, other] = [await statusOver(store), await statusOver(store)];

    expect(await Promise.all([one(), other(), one()])).toEqual([200, 200, 200]);
    expect(await store.look({ prefix: "", limit: 10, maxClaims: 0 })).toEqual({ keys: [] });
  });

  test("whatever its clients do, since none may take the key that servers look with", async () => {
    const backend = memoryStore();
    const server = await startLockServer({ store: backend });
    onTestFinished(() => server.stop({ graceMs: 0 }));
    const session = remoteStore(server.url);
    onTestFinished(() => session.close());
    const key = "holdfast:health";
    const refused = { code: "INVALID_ARGUMENT", key, message: expect.stringContaining("Choose another key") };
    await expect(session.acquire(claimRequest("i", { key }))).rejects.toMatchObject(refused);
    for (const [method, body] of [
      ["AcquireDetached", { key }],
      ["Acquire", { key, detached: true }],
      ["AcquireMany", { keys: [{ key: "a" }, { key }], terms: { detached: true } }],
    ] as const) {
      const call = method === "AcquireDetached" ? jsonCall : jsonStreamCall;
      expect(await say(server.port, call(method, body))).toContain("Choose another key");
    }
    expect((await fetch(`${server.url}/readyz`)).status).toBe(200);
    expect(await backend.look({ prefix: "", limit: 10, maxClaims: 0 })).toEqual({ keys: [] });
  });

  test("while another server looks at the same store", async () => {
    const store = memoryStore();
    const servers = [new Health(store), new Health(store)];

    expect(await Promise.all(servers.map((server) => server.isReady()))).toEqual([true, true]);
  });

  test("when its store was slow, so that one look began before the one before it was over", async () => {
    vi.useFakeTimers({ toFake: ["performance", "setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const store = memoryStore();
    let goOn = () => {};
    const held = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const acquire = store.acquire.bind(store);
    store.acquire = async (request) => {
      await held;
      return acquire(request);
    };
    const health = new Health(store);

    const first = health.isReady();
    vi.advanceTimersByTime(1_001);
    const second = health.isReady();
    goOn();
    expect(await Promise.all([first, second])).toEqual([true, true]);
  });

  test.skipIf(!canRunRedis())("not when its store answers, but does not write", async () => {
    const redis = await startRedis();
    const { client, end } = await standaloneClients["ioredis 5"]!(redis);
    onTestFinished(async () => {
      end();
      await redis.stop();
    });
    const store = redisStore(client);
    const look = () => store.look({ key: "any", maxClaims: 0 });
    await look();
    const status = await statusOver(store);

    await redis.command("REPLICAOF", "127.0.0.1", 1);
    await expect(look()).resolves.toBeDefined();
    expect(await status()).toBe(503);
  });
});
