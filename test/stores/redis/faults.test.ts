/**
 * Real servers get killed, paused, cut off and failed over while workers take turns. Throughout: fences only grow, an
 * outage is never contention, nobody hangs for longer than a heartbeat once the server is back, and nothing is
 * unhandled, which the test runner watches.
 */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, systemClock } from "holdfast";
import { connectionOver, type RedisClient, redisStore } from "holdfast/redis";
import { describe, expect, type TestContext, test } from "vitest";
import { startProxy } from "../../engines/proxy.ts";
import { canRunRedis, majorVersion, type RedisServer, startRedis, until } from "../../engines/redis.ts";
import {
  type Connected,
  clusterClients,
  sentinelClients,
  standaloneClients,
} from "../../engines/redis-clients.ts";
import {
  isMaster,
  type RedisSentinels,
  startRedisCluster,
  startRedisSentinels,
} from "../../engines/redis-topologies.ts";
import { forkProgram } from "../../programs.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { wrongBy } from "../fault-suite.ts";
import { type Participant, Workers } from "../workers.ts";
import { Witness } from "./witness.ts";

const ttlMs = 1_500;
const HOUR_MS = 3_600_000;
/** A heartbeat, the claim of whoever held last, and a second for all of them to have their turn. */
const soonMs = ttlMs / 3 + ttlMs + 1_000;

/** One worker for each client library and version. */
function connectsTo<T>(
  clients: Readonly<Record<string, (to: T) => Promise<Connected>>>,
  to: T,
  witness?: Witness,
) {
  return Object.entries(clients).map(([name, connect]) => async (): Promise<Participant> => {
    const { client, end } = await connect(to);
    const store = redisStore(client, { partitions: 1 });
    return { store: witness?.watch(store) ?? store, end, isBack: () => canWrite(name, client) };
  });
}

/** Resolves when the client has found a server that takes writes for the locks' slot. How long that takes is its own affair. */
function canWrite(name: string, client: RedisClient): Promise<void> {
  const connection = connectionOver(client);
  const key = "holdfast:{0}:probe";
  const write = () => connection.send(key, "SET", [key, "here"]).then(() => true);
  return until(`${name} is back`, () => Promise.race([write(), sleep(1_000, false)]), 60_000);
}

async function started<T extends { stop(): Promise<void> }>(
  context: TestContext,
  starting: Promise<T>,
): Promise<T> {
  const servers = await starting;
  context.onTestFinished(() => servers.stop());
  return servers;
}

/** Replicas no longer get what the master acknowledges, and do not know that they miss anything. */
async function cutOff(master: RedisServer, replicas: readonly RedisServer[]): Promise<void> {
  for (const replica of replicas) await replica.command("CONFIG", "SET", "masterauth", "wrong");
  await master.command("CLIENT", "KILL", "TYPE", "replica");
  await until("the replicas are cut off", async () =>
    String(await master.command("INFO", "replication")).includes("connected_slaves:0"),
  );
}

async function letFollow(replicas: readonly RedisServer[]): Promise<void> {
  for (const replica of replicas) {
    // Sentinels end all connections to a server that they give another role.
    await until("it may follow", async () =>
      Boolean(await replica.command("CONFIG", "SET", "masterauth", "")),
    );
  }
}

/** Promotes a replica although the master is well. That one does not let itself be demoted, until it is told to follow. */
async function depose({ name, master, replicas, sentinels }: RedisSentinels): Promise<void> {
  await master.command("ACL", "SETUSER", "default", "-slaveof", "-replicaof");
  await sentinels[0]!.command("SENTINEL", "FAILOVER", name);
  await until("a replica is promoted", async () =>
    (await Promise.all(replicas.map(isMaster))).includes(true),
  );
}

/** Makes a deposed master a replica of the new one, as the sentinels would. Its clients have to look for that one. */
async function follow(deposed: RedisServer, replicas: readonly RedisServer[]): Promise<void> {
  const masters = await Promise.all(replicas.map(isMaster));
  await deposed.command("ACL", "SETUSER", "default", "+slaveof", "+replicaof");
  await deposed.command("REPLICAOF", "127.0.0.1", replicas[masters.indexOf(true)]!.port);
  await deposed.command("CLIENT", "KILL", "TYPE", "normal");
  await deposed.command("CLIENT", "KILL", "TYPE", "pubsub");
}

/** Holds a lock whose grant a failover loses. Both the holder and the next one have to make the best of it. */
async function holdWhatWillBeLost(context: TestContext, connect: () => Promise<Participant>) {
  const connected = await connect();
  const locks = createLocks(connected.store, { onWarning: () => {}, requestTimeoutMs: 15_000 });
  context.onTestFinished(async () => {
    await locks.close();
    connected.end();
  });
  const lease = await locks.mutex("doomed", { ttlMs: 30_000 }).acquire();
  return {
    /** Somebody else gets the lock, with a higher fence, and the holder is told at its next heartbeat. */
    async isSuperseded(by: () => Promise<Participant>) {
      const other = await by();
      const others = createLocks(other.store, { requestTimeoutMs: 15_000 });
      context.onTestFinished(async () => {
        await others.close();
        other.end();
      });
      const next = await others.mutex("doomed").acquire({ waitMs: 15_000 });
      expect(next.fence).toBeGreaterThan(lease.fence);
      await lease.extend(30_000).catch((error: unknown) => error);
      expect(lease.held).toBe(false);
      expect(lease.signal.reason).toMatchObject({ code: "LEASE_LOST", reason: "gone" });
    },
  };
}

/** Whether servers and clients find each other again is not the store's affair. Where they did not, there is nothing to judge it by. */
const secondTry = { count: 1, condition: / is back\./ };

describe.skipIf(!canRunRedis()).concurrent("redis: faults", { timeout: 120_000, retry: secondTry }, () => {
  test.for([
    ["forgets everything", [] as string[]],
    ["keeps a log", ["--appendonly", "yes", "--appendfsync", "always"]],
  ] as const)(
    "a server that is killed and %s serves all waiters when it is back",
    async ([, settings], context) => {
      const server = await started(context, startRedis(settings));
      const witness = new Witness("work");
      const workers = await Workers.start({
        connects: connectsTo(standaloneClients, server, witness),
        ttlMs,
      });
      for (let round = 0; round < 2; round++) {
        await server.kill();
        await sleep(300);
        await server.restart();
        await workers.servesAll(soonMs);
      }
      await workers.stop();
      witness.expectOneAtATime();
      expect(workers.overlaps).toBe(0);
    },
  );

  test("a server that is paused for longer than the ttl serves all waiters when it goes on", async (context) => {
    const server = await started(context, startRedis());
    const witness = new Witness("work");
    const workers = await Workers.start({ connects: connectsTo(standaloneClients, server, witness), ttlMs });
    server.pause();
    await sleep(ttlMs + 500);
    server.resume();
    await workers.servesAll(soonMs);
    await workers.stop();
    witness.expectOneAtATime();
    expect(workers.overlaps).toBe(0);
  });

  test("clocks that are wrong by an hour on the machines of clients change nothing", async (context) => {
    const server = await started(context, startRedis());
    const witness = new Witness("work");
    const clocks = [wrongBy(-HOUR_MS), systemClock, wrongBy(HOUR_MS), wrongBy(-HOUR_MS)];
    const connects = connectsTo(standaloneClients, server, witness).map((connect, index) => async () => ({
      ...(await connect()),
      clock: clocks[index]!,
    }));
    const workers = await Workers.start({ connects, ttlMs });
    // A claim that nobody renews ends by the clock of the server, whoever waits for it.
    const { store, end } = await connects[0]!();
    const locks = createLocks(store, { clock: wrongBy(HOUR_MS), onWarning: () => {} });
    context.onTestFinished(async () => {
      await locks.close();
      end();
    });
    const left = await store.acquire(claimRequest("left", { key: "left", ttlMs: 1_000 }));
    const next = await locks.mutex("left", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    const [held] = (await locks.inspect("left")).held;
    expect(held?.fence).toBe(next.fence);
    const endedMs = (left as { acquiredAtMs: number }).acquiredAtMs + 1_000;
    expect(held?.acquiredAtMs).toBeGreaterThanOrEqual(endedMs);
    expect(held?.acquiredAtMs).toBeLessThan(endedMs + HOUR_MS / 2);

    await workers.servesAll(soonMs);
    await workers.stop();
    witness.expectOneAtATime();
    expect(workers.overlaps).toBe(0);
    const now = BigInt(Date.now()) * 1_000n;
    const half = BigInt(HOUR_MS / 2) * 1_000n;
    expect(workers.fences.filter((fence) => fence < now - half || fence > now + half)).toEqual([]);
  });

  test("a holder that was paused for longer than its ttl knows that it lost before it writes", async (context) => {
    const server = await started(context, startRedis());
    const program = new URL("../holder-process.ts", import.meta.url);
    const child = forkProgram(program, ["redis", `${server.port}`, `${ttlMs}`]);
    context.onTestFinished(() => void child.kill("SIGKILL"));
    const messages: { fence?: string; wrote?: number; lost?: boolean }[] = [];
    child.on("message", (message) => messages.push(message as object));
    await until("the process writes", async () => messages.some(({ wrote }) => wrote !== undefined));

    child.kill("SIGSTOP");
    const client = await standaloneClients["node-redis 6"]!(server);
    const locks = createLocks(redisStore(client.client));
    const next = await locks.mutex("paused").acquire({ waitMs: 30_000 });
    const grantedMs = Date.now();
    const exit = once(child, "exit");
    child.kill("SIGCONT");
    await exit;
    // Its last words may come after its end.
    await until("it has said that it lost", async () => messages.some(({ lost }) => lost === true));

    expect(next.fence).toBeGreaterThan(BigInt(messages[0]!.fence!));
    expect(messages.filter(({ wrote = 0 }) => wrote >= grantedMs)).toEqual([]);
    expect(messages.at(-1)).toEqual({ lost: true });
    await locks.close();
    client.end();
  });

  test("subscriptions that are dropped come back, and cost at most a heartbeat", async (context) => {
    const server = await started(context, startRedis());
    const witness = new Witness("work");
    const workers = await Workers.start({ connects: connectsTo(standaloneClients, server, witness), ttlMs });
    for (let round = 0; round < 5; round++) {
      expect(Number(await server.command("CLIENT", "KILL", "TYPE", "pubsub"))).toBeGreaterThan(0);
      await workers.servesAll(soonMs);
    }
    await until("all of them listen again", async () => {
      const channels = (await server.command("PUBSUB", "CHANNELS")) as string[];
      return channels.length === Object.keys(standaloneClients).length;
    });
    await workers.stop();
    witness.expectOneAtATime();
    expect(workers.overlaps).toBe(0);
  });

  test("a server that forgets its scripts is sent them again, unnoticed", async (context) => {
    const server = await started(context, startRedis());
    const witness = new Witness("work");
    const workers = await Workers.start({
      connects: connectsTo(standaloneClients, server, witness),
      ttlMs,
      holdMs: 1,
    });
    for (let round = 0; round < 20; round++) {
      await server.command("SCRIPT", "FLUSH");
      await sleep(20);
    }
    await workers.servesAll(soonMs);
    await workers.stop();
    witness.expectOneAtATime();
    expect(workers.overlaps).toBe(0);
  });

  test("a server that loses all its keys gives out no fence twice", async (context) => {
    const server = await started(context, startRedis());
    const witness = new Witness("work");
    const workers = await Workers.start({ connects: connectsTo(standaloneClients, server, witness), ttlMs });
    for (let round = 0; round < 3; round++) {
      await workers.lose(() => server.command("FLUSHALL"));
      await workers.servesAll(soonMs);
    }
    await workers.stop();
    witness.expectOneAtATime();
  });

  test("a grant that is learnt of late, when its key is lost and granted to another, has the lower fence", async (context) => {
    const server = await started(context, startRedis());
    const proxy = await started(context, startProxy(server.port));
    const [late, other] = await Promise.all(
      [proxy, server].map(async (to) => {
        const { client, end } = await standaloneClients["ioredis 5"]!(to);
        const locks = createLocks(redisStore(client), { onWarning: () => {}, requestTimeoutMs: 15_000 });
        context.onTestFinished(async () => {
          await locks.close();
          end();
        });
        await locks.mutex("warm").run(() => {});
        return locks;
      }),
    );
    proxy.decide(({ direction }) => (direction === "reply" ? "hold" : "pass"));
    const learning = late!.mutex("k").acquire();
    await until("it is granted", async () => (await other!.inspect("k")).heldCount === 1);
    await server.command("FLUSHALL");
    const second = await other!.mutex("k").acquire();
    proxy.heal();
    const first = await learning;
    expect(first.fence).toBeLessThan(second.fence);
    await first.extend(30_000).catch(() => {});
    expect([first.held, second.held]).toEqual([false, true]);
  });

  test("sentinels that fail over to a replica without the last writes lose no fence and no waiter", async (context) => {
    const sentinels = await started(context, startRedisSentinels());
    const { master, replicas } = sentinels;
    const connects = connectsTo(sentinelClients, sentinels);
    const workers = await Workers.start({ connects, ttlMs });
    await cutOff(master, replicas);
    const doomed = await holdWhatWillBeLost(context, connects[0]!);
    await workers.servesAll(soonMs);

    await master.kill();
    await sentinels.failOver();
    await letFollow(replicas);
    await workers.servesAll(soonMs);
    await doomed.isSuperseded(connects[3]!);
    await workers.stop();
  });

  test("a master that was deposed and is still up gives no client a lower fence", async (context) => {
    const sentinels = await started(context, startRedisSentinels());
    const { master, replicas } = sentinels;
    const witness = new Witness("work");
    const connects = connectsTo(sentinelClients, sentinels, witness);
    const workers = await Workers.start({ connects, ttlMs });
    await depose(sentinels);
    // Whoever is connected stays with the former master, which goes on granting. Others come to the new one.
    await workers.join(connects);
    for (let round = 0; round < 5; round++) await workers.servesAll(soonMs);
    expect(workers.overlaps, "holders of both masters").toBeGreaterThan(0);
    const highest = workers.highest;
    await follow(master, replicas);
    await workers.servesAll(soonMs);
    await workers.stop({ masters: 2 });
    // It would see them in the other tests, too.
    expect(witness.overlaps.length).toBeGreaterThan(0);
    expect(workers.highest).toBeGreaterThan(highest);
  });

  test("a master that must have its replicas grants nothing once it is deposed", async (context) => {
    const settings = ["--min-replicas-to-write", "2"];
    const sentinels = await started(context, startRedisSentinels(settings));
    const { master, replicas } = sentinels;
    if ((await majorVersion(master)) < 7)
      return context.skip("Redis 6.2 does not look at its replicas before a script.");
    const workers = await Workers.start({ connects: connectsTo(sentinelClients, sentinels), ttlMs });
    await depose(sentinels);
    const highest = BigInt(String(await master.command("HGET", "holdfast:{0}:locks", "")));
    await sleep(ttlMs);
    expect(BigInt(String(await master.command("HGET", "holdfast:{0}:locks", "")))).toBe(highest);
    await follow(master, replicas);
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("a cluster that fails over to a replica without the last writes loses no fence and no waiter", async (context) => {
    const cluster = await started(context, startRedisCluster());
    // node-redis 5 looks for a new master only when another server tells it to; the documentation says so.
    const { "node-redis 5": _, ...clients } = clusterClients;
    const connects = connectsTo(clients, cluster);
    const workers = await Workers.start({ connects, ttlMs });
    const owns = await Promise.all(
      cluster.masters.map((each) => each.command("EXISTS", "holdfast:{0}:locks").catch(() => 0)),
    );
    const place = owns.indexOf(1);
    const [master, replica] = [cluster.masters[place]!, cluster.replicas[place]!];
    await cutOff(master, [replica]);
    const doomed = await holdWhatWillBeLost(context, connects[0]!);
    await workers.servesAll(soonMs);

    await master.kill();
    await cluster.failOver(place);
    await letFollow([replica]);
    await workers.servesAll(soonMs);
    await doomed.isSuperseded(connects[2]!);
    await workers.stop();
  });
});
