/** Members take over the grant that was agreed upon, in memory and in Redis alike. */
import { type AgreedGrant, memoryStore, type QuorumMember } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type RedisServer, startRedis } from "../../engines/redis.ts";
import { Cluster } from "./cluster.ts";

let server: RedisServer;
let client: Redis;

beforeAll(async () => {
  server = await startRedis();
  client = new Redis(server.port, "127.0.0.1");
}, 120_000);

afterAll(async () => {
  client.disconnect();
  await server.stop();
});

const members: Record<string, () => QuorumMember> = {
  memory: () => memoryStore(),
  redis: () => redisStore(client),
};

const requests = new Cluster(1);

for (const [name, open] of Object.entries(members)) {
  describe(`${name}: confirm`, () => {
    // A Redis record is kept in another form from 16 claims on.
    for (const readers of [1, 20]) {
      test(`puts the agreed grant in place of the own one, among ${readers}`, async () => {
        const store = open();
        const key = `${name}-${readers}`;
        const claims = Array.from({ length: readers }, () => requests.reader(key, { ttlMs: 60_000 }));
        const answers = await Promise.all(claims.map((claim) => store.acquire(claim)));
        const [claim, answer] = [claims.at(-1), answers.at(-1)];
        if (claim === undefined || answer?.state !== "held") throw new Error("It is not held.");
        const agreed = { fence: answer.fence + 1_000_000_000n, acquiredAtMs: 7 };

        expect(await store.confirm({ ...claim, token: "another" }, answer.fence, agreed)).toBe(false);
        expect(await store.confirm(claim, answer.fence - 1n, agreed)).toBe(false);
        expect(await store.renew([claim])).toMatchObject([{ fence: answer.fence }]);

        expect(await store.confirm(claim, answer.fence, agreed)).toBe(true);
        expect(await store.confirm(claim, answer.fence, agreed)).toBe(true);
        expect(await store.renew([claim])).toMatchObject([{ state: "held", ...agreed }]);
        const [status] = (await store.look({ key, maxClaims: 0 })).keys;
        expect(status?.fence).toBe(agreed.fence);

        const next = await store.acquire(requests.reader(key));
        expect(next.state === "held" && next.fence > agreed.fence).toBe(true);
        await store.release(claims);
        expect(await store.confirm(claim, answer.fence, agreed)).toBe(false);
      });
    }

    for (const readers of [1, 20]) {
      test(`lets nobody replace what somebody else has proposed, among ${readers}`, async () => {
        const store = open();
        const key = `${name}-proposed-${readers}`;
        const claims = Array.from({ length: readers }, () => requests.reader(key, { ttlMs: 60_000 }));
        const answers = await Promise.all(claims.map((claim) => store.acquire(claim)));
        const [claim, answer] = [claims.at(-1), answers.at(-1)];
        if (claim === undefined || answer?.state !== "held") throw new Error("It is not held.");
        const proposal = (nth: number, by: string) => ({
          fence: answer.fence + BigInt(nth),
          acquiredAtMs: 7,
          by,
        });
        let fence = answer.fence;
        const confirms = async (agreed: AgreedGrant) => {
          // A heartbeat in between must not make anybody forget.
          const [renewed] = await store.renew([claim]);
          expect(renewed).toMatchObject({ state: "held", fence });
          const confirmed = await store.confirm(claim, fence, agreed);
          if (confirmed) fence = agreed.fence;
          return confirmed;
        };

        expect(await confirms(proposal(1_000, "one"))).toBe(true);
        expect(await confirms(proposal(2_000, "two"))).toBe(false);
        // Whoever has proposed it can think better of it, as long as nobody else has joined in.
        expect(await confirms(proposal(3_000, "one"))).toBe(true);
        expect(await confirms(proposal(3_000, "two"))).toBe(true);
        expect(await confirms(proposal(4_000, "one"))).toBe(false);
        expect(await confirms(proposal(4_000, "two"))).toBe(false);
        // But what is in force is put in its place.
        expect(await confirms({ fence: answer.fence + 5_000n, acquiredAtMs: 8 })).toBe(true);
        expect(await confirms(proposal(6_000, "two"))).toBe(false);
        // Taken over by another caller, it is another grant.
        const taken = await store.acquire({ ...claim, token: "another" });
        if (taken.state !== "held") throw new Error("It is not held.");
        const again = { fence: taken.fence + 1n, acquiredAtMs: 9, by: "two" };
        expect(await store.confirm({ ...claim, token: "another" }, taken.fence, again)).toBe(true);
      });
    }

    test("keeps later fences above the agreed one after the key was idle", async () => {
      const store = open();
      const request = requests.mutex(`${name}-idle`);
      const answer = await store.acquire(request);
      if (answer.state !== "held") throw new Error("It is not held.");
      const agreed = { fence: answer.fence + 5_000_000_000n, acquiredAtMs: answer.acquiredAtMs };
      expect(await store.confirm(request, answer.fence, agreed)).toBe(true);
      await store.release([request]);
      const next = await store.acquire(requests.mutex(request.key));
      expect(next.state === "held" && next.fence > agreed.fence).toBe(true);
    });
  });
}
