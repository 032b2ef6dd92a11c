/** What a caller is told while a real server cannot serve, and that all is well again afterwards. */
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type HoldfastError } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, majorVersion, type RedisServer, startRedis, until } from "../../engines/redis.ts";
import { type Connected, standaloneClients } from "../../engines/redis-clients.ts";
import { claimRequest } from "../../record/claim-request.ts";

const host = "127.0.0.1";

type Trouble = readonly [
  name: string,
  begin: (server: RedisServer) => unknown,
  end: (server: RedisServer) => unknown,
  /** What the server answers meanwhile, if anything. */
  answer?: string,
];

const setting = (name: string, trouble: string | number, fine: string | number, answer: string): Trouble => [
  name,
  (server) => server.command("CONFIG", "SET", name, trouble),
  (server) => server.command("CONFIG", "SET", name, fine),
  answer,
];

/** Where a server keeps its snapshot: it cannot replace a folder with one. */
const snapshot = ({ folder }: RedisServer) => join(folder, "dump.rdb");

const troubles: readonly Trouble[] = [
  setting("maxmemory", 1, 0, "OOM"),
  setting("min-replicas-to-write", 1, 0, "NOREPLICAS"),
  [
    "a script that does not end",
    async (server) => {
      server.command("EVAL", "while true do end", 0).catch(() => {});
      await sleep(100);
    },
    (server) => server.command("SCRIPT", "KILL"),
    "BUSY",
  ],
  [
    "the role of a replica",
    (server) => server.command("REPLICAOF", host, 1),
    (server) => server.command("REPLICAOF", "NO", "ONE"),
    "READONLY",
  ],
  [
    "a replica that has lost its master and serves nothing old",
    async (server) => {
      await server.command("CONFIG", "SET", "replica-serve-stale-data", "no");
      await server.command("REPLICAOF", host, 1);
    },
    async (server) => {
      await server.command("REPLICAOF", "NO", "ONE");
      await server.command("CONFIG", "SET", "replica-serve-stale-data", "yes");
    },
    "MASTERDOWN",
  ],
  [
    "a disk that takes no snapshots",
    async (server) => {
      mkdirSync(join(snapshot(server), "in the way"), { recursive: true });
      await server.command("CONFIG", "SET", "save", "3600 1000000");
      await server.command("BGSAVE");
      await until("it has failed to save", async () =>
        String(await server.command("INFO", "persistence")).includes("rdb_last_bgsave_status:err"),
      );
    },
    async (server) => {
      await server.command("CONFIG", "SET", "save", "");
      rmSync(snapshot(server), { recursive: true });
    },
    "MISCONF",
  ],
  ["a pause", (server) => server.pause(), (server) => server.resume()],
  ["a crash", (server) => server.kill(), (server) => server.restart()],
];

describe.skipIf(!canRunRedis())("redis: an outage", () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis(["--lua-time-limit", "20"]);
  }, 60_000);

  afterAll(() => server?.stop());

  function open({ client, end }: Connected) {
    const locks = createLocks(redisStore(client), { requestTimeoutMs: 500, onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      end();
    });
    return locks;
  }

  test.for(troubles)("by %s is not contention, and passes", async ([name, begin, end, answer], context) => {
    if (name === "min-replicas-to-write" && (await majorVersion(server)) < 7)
      return context.skip("Redis 6.2 does not look at its replicas before a script.");
    const connected = await Promise.all(Object.values(standaloneClients).map((connect) => connect(server)));
    const clients = connected.map(open);
    await Promise.all(clients.map((locks, index) => locks.mutex(`fine-${index}`).run(() => {})));

    await begin(server);
    const told = await Promise.all(
      clients.map((locks) =>
        locks
          .mutex("key")
          .tryAcquire()
          .catch((error: HoldfastError) => error),
      ),
    );
    await end(server);

    expect(told).toMatchObject(clients.map(() => ({ code: "STORE_UNAVAILABLE" })));
    if (answer !== undefined) {
      const message = expect.stringContaining(`it answered ${answer}.`);
      expect(told).toMatchObject(clients.map(() => ({ message })));
    }
    await until("all are served again", async () => {
      for (const locks of clients)
        await locks.mutex("key", { ttlMs: 1_000 }).run(() => {}, { waitMs: 2_000 });
      return true;
    });
  });

  /**
   * The interleaving: a master is deposed and follows another one, or a replica is cut off, and does not know which claims there are by now.
   * A client that is connected to it asks for one of them, and nothing would have to be written. What such a server knows must not end
   * a lease, nor tell that one goes on or that a lock is taken.
   */
  test("by the role of a replica is told also where nothing is to be written", async () => {
    const { client, end } = await standaloneClients["ioredis 5"]!(server);
    const store = redisStore(client);
    onTestFinished(async () => {
      await store.close();
      end();
    });
    const held = claimRequest("held", { key: "held", ttlMs: 60_000 });
    const other = claimRequest("other", { key: "held", wait: false });
    const elsewhere = claimRequest("elsewhere", { key: "elsewhere" });
    const agreed = { fence: 1n, acquiredAtMs: 1 };
    const questions: readonly (() => Promise<unknown>)[] = [
      () => store.renew([elsewhere]),
      () => store.release([elsewhere]),
      () => store.renew([other]),
      () => store.release([other]),
      () => store.renew([{ ...held, token: "former" }]),
      () => store.release([{ ...held, token: "former" }]),
      () => store.release([elsewhere, other]),
      () => store.renew([{ ...held, ttlMs: 10 }]),
      () => store.renew([{ key: held.key, id: held.id, ttlMs: 10 }]),
      () => store.acquire(other),
      () => store.confirm(elsewhere, 1n, agreed),
      () => store.confirm(other, 1n, agreed),
    ];
    await store.acquire(held);
    const answers: unknown[] = [];
    for (const ask of questions) answers.push(await ask());
    expect(answers.slice(0, 7)).toEqual([
      [{ state: "gone" }],
      [false],
      [{ state: "gone" }],
      [false],
      [{ state: "gone", takenOverBy: "" }],
      [false],
      [false, false],
    ]);
    expect(answers.slice(7)).toMatchObject([
      [{ state: "held" }],
      [{ state: "held" }],
      { state: "refused" },
      false,
      false,
    ]);

    await server.command("REPLICAOF", host, 1);
    const told = (answer: Promise<unknown>) => answer.catch((error: { code: string }) => error.code);
    const each: unknown[] = [];
    for (const ask of questions) each.push(await told(ask()));
    const atOnce = await Promise.all(questions.map((ask) => told(ask())));
    await server.command("REPLICAOF", "NO", "ONE");

    const outages = questions.map(() => "STORE_UNAVAILABLE");
    expect(each).toEqual(outages);
    expect(atOnce).toEqual(outages);
  });

  test("that began before the store was opened passes as well", async () => {
    await server.kill();
    const locks = open(await standaloneClients["ioredis 5"]!(server));
    await expect(locks.mutex("key").acquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await server.restart();
    await until("it is served", () => locks.mutex("key").run((lease) => lease.held));
    await until("it listens", async () => (await listeners(server)) === 1);
  });

  test("that ends the client's connection for subscriptions for good brings another one", async () => {
    const ioRedis = new Redis(server.port, host, { retryStrategy: () => null });
    const nodeRedis = createClient({ socket: { port: server.port, host, reconnectStrategy: false } });
    await nodeRedis.on("error", () => {}).connect();
    open({ client: ioRedis, end: () => ioRedis.disconnect() });
    open({ client: nodeRedis, end: () => nodeRedis.destroy() });
    for (let round = 0; round < 2; round++) {
      await until("both listen", async () => (await listeners(server)) === 2);
      await server.command("CLIENT", "KILL", "TYPE", "pubsub");
    }
    await until("both listen again", async () => (await listeners(server)) === 2);
  });

  test("does not keep a store from being closed", async () => {
    await server.kill();
    const { client, end } = await standaloneClients["ioredis 6"]!(server);
    const locks = createLocks(redisStore(client));
    await locks.close();
    end();
    await server.restart();
    await sleep(100);
    expect(await listeners(server)).toBe(0);
  });
});

async function listeners(server: RedisServer): Promise<number> {
  return ((await server.command("PUBSUB", "CHANNELS")) as string[]).length;
}
