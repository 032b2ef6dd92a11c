/** Redis in the shapes in which it is run: several servers, a cluster, and a master watched by sentinels. */
import { type RedisServer, startRedis, startRedisServer, until } from "./redis.ts";

export interface RedisGroup {
  readonly servers: readonly RedisServer[];
  stop(): Promise<void>;
}

/** Servers that know nothing of each other. */
export async function startRedisServers(
  count: number,
  settings: readonly string[] = [],
): Promise<RedisGroup> {
  return group(await startAll(count, () => startRedis(settings)));
}

export interface RedisCluster extends RedisGroup {
  /** Those that were masters in the beginning; the replica of each has the same place in `replicas`. */
  readonly masters: readonly RedisServer[];
  readonly replicas: readonly RedisServer[];
  /** Promotes the replica of a master that is down, and waits until all others know. */
  failOver(place: number): Promise<void>;
}

const SLOTS = 16_384;
/** Replicas get their copy at once, not after the seconds in which others might ask for one as well. */
const promptReplication = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
/** A cluster talks on its port plus this. */
const BUS = 10_000;

/**
 * How long a server may be silent. A busy machine keeps one from answering for seconds, and a failover that no test
 * asked for would leave two masters behind.
 */
const PATIENT_MS = 60_000;

/** Three masters with a replica each. */
export async function startRedisCluster(): Promise<RedisCluster> {
  const settings = [
    ...promptReplication,
    // They tell each other of the rest at a pace that depends on this.
    ...["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"],
    ...["--cluster-replica-validity-factor", "0"],
  ];
  const servers = await startAll(6, () => startRedisServer({ settings, maxPort: 65_535 - BUS }));
  const cluster: RedisCluster = {
    ...group(servers),
    masters: servers.slice(0, 3),
    replicas: servers.slice(3),
    async failOver(place) {
      const alive = servers.filter((server) => server !== cluster.masters[place]);
      const replica = cluster.replicas[place]!;
      const id = String(await replica.command("CLUSTER", "MYID"));
      // By order. Servers that are to find out by themselves must be hasty, and on a busy machine depose others as well.
      await replica.command("CLUSTER", "FAILOVER", "TAKEOVER");
      await everywhere(alive, "knows the new master", async (server) => {
        const nodes = String(await server.command("CLUSTER", "NODES")).split("\n");
        const whole = String(await server.command("CLUSTER", "INFO")).includes("cluster_state:ok");
        return whole && nodes.some((node) => node.startsWith(id) && / connected \d+-\d+$/.test(node));
      });
    },
  };
  return orStop(cluster, async () => {
    await Promise.all(cluster.masters.map(serveSlots));
    await Promise.all(
      servers.slice(1).map((server) => server.command("CLUSTER", "MEET", "127.0.0.1", servers[0]!.port)),
    );
    await everywhere(servers, "knows the others", async (server) => {
      const nodes = String(await server.command("CLUSTER", "NODES"));
      return nodes.trim().split("\n").length === servers.length && !nodes.includes("handshake");
    });
    await Promise.all(
      cluster.replicas.map(async (replica, index) => {
        const master = String(await cluster.masters[index]!.command("CLUSTER", "MYID"));
        await replica.command("CLUSTER", "REPLICATE", master);
      }),
    );
    await everywhere(servers, "sees a whole cluster", async (server) => {
      const nodes = String(await server.command("CLUSTER", "NODES"));
      const whole = String(await server.command("CLUSTER", "INFO")).includes("cluster_state:ok");
      return whole && nodes.match(/\bslave\b/g)?.length === cluster.replicas.length;
    });
    await everywhere(cluster.replicas, "follows its master", isLinked);
    await setEverywhere(servers, "CONFIG", "SET", "cluster-node-timeout", PATIENT_MS);
  });
}

async function serveSlots(server: RedisServer, index: number, masters: readonly RedisServer[]) {
  const from = Math.round((index * SLOTS) / masters.length);
  const to = Math.round(((index + 1) * SLOTS) / masters.length);
  await server.command("CLUSTER", "SET-CONFIG-EPOCH", index + 1);
  // One by one: ranges are newer than the oldest server that is supported.
  await server.command("CLUSTER", "ADDSLOTS", ...Array.from({ length: to - from }, (_, slot) => from + slot));
}

export interface RedisSentinels extends RedisGroup {
  /** The name under which the sentinels know the master. */
  readonly name: string;
  /** The master in the beginning. */
  readonly master: RedisServer;
  readonly replicas: readonly RedisServer[];
  readonly sentinels: readonly RedisServer[];
  /** Waits until a replica has been promoted in place of the master, which is down. */
  failOver(): Promise<void>;
}

/** A master with two replicas and three sentinels. The settings are those of the first three. */
export async function startRedisSentinels(settings: readonly string[] = []): Promise<RedisSentinels> {
  const name = "holdfast-test";
  const master = await startRedis([...promptReplication, ...settings]);
  const follow = ["--replicaof", "127.0.0.1", `${master.port}`, ...promptReplication, ...settings];
  const configuration = [
    `sentinel monitor ${name} 127.0.0.1 ${master.port} 2`,
    `sentinel down-after-milliseconds ${name} ${PATIENT_MS}`,
    `sentinel failover-timeout ${name} 10000`,
    "",
  ].join("\n");
  const others = await startAll(5, (index) =>
    index < 2 ? startRedis(follow) : startRedisServer({ configuration, settings: ["--sentinel"] }),
  ).catch(async (error) => {
    await master.stop();
    throw error;
  });
  const [replicas, sentinels] = [others.slice(0, 2), others.slice(2)];
  // By order. Sentinels that are to find out by themselves must be hasty, and then promote no replica that was cut off for longer
  // than ten times their haste, however long they are given.
  const failOver = async () => {
    const promote = async () => {
      if ((await Promise.all(replicas.map(isMaster))).includes(true)) return true;
      await sentinels[0]?.command("SENTINEL", "FAILOVER", name);
      return false;
    };
    await until("a replica is promoted", promote, 60_000);
  };
  return orStop({ ...group([master, ...others]), name, master, replicas, sentinels, failOver }, async () => {
    await everywhere(replicas, "follows the master", isLinked);
    await everywhere(sentinels, "knows the others", async (sentinel) => {
      const info = String(await sentinel.command("INFO", "sentinel"));
      return info.includes("status=ok") && info.includes("slaves=2") && info.includes("sentinels=3");
    });
  });
}

async function isLinked(replica: RedisServer): Promise<boolean> {
  return String(await replica.command("INFO", "replication")).includes("master_link_status:up");
}

export async function isMaster(server: RedisServer): Promise<boolean> {
  return String(await server.command("INFO", "replication")).includes("role:master");
}

async function setEverywhere(
  servers: readonly RedisServer[],
  ...words: readonly (string | number)[]
): Promise<void> {
  await Promise.all(servers.map((server) => server.command(...words)));
}

function everywhere(
  servers: readonly RedisServer[],
  what: string,
  check: (server: RedisServer) => Promise<boolean>,
): Promise<unknown> {
  return Promise.all(servers.map((server) => until(`port ${server.port} ${what}`, () => check(server))));
}

/** All of them, or none. */
async function startAll(
  count: number,
  start: (index: number) => Promise<RedisServer>,
): Promise<readonly RedisServer[]> {
  const started = await Promise.allSettled(Array.from({ length: count }, (_, index) => start(index)));
  const servers = started.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  const failure = started.find((each) => each.status === "rejected");
  if (failure === undefined) return servers;
  await group(servers).stop();
  throw failure.reason;
}

function group(servers: readonly RedisServer[]): RedisGroup {
  return {
    servers,
    async stop() {
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}

async function orStop<T extends RedisGroup>(started: T, prepare: () => Promise<void>): Promise<T> {
  try {
    await prepare();
    return started;
  } catch (error) {
    await started.stop();
    throw error;
  }
}
