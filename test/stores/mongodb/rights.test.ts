/** A server that wants to know who asks, and users with more and with fewer rights. Only MongoDB itself has those. */
import { readFileSync } from "node:fs";
import { createLocks } from "holdfast";
import { type MongodbStoreOptions, mongodbStore } from "holdfast/mongodb";
import { MongoClient } from "mongodb6";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunMongod, type GuardedMongodb, type Login, startGuardedMongodb } from "../../engines/mongodb.ts";
import { failure } from "../failure.ts";

/** The single actions that the page lists. */
function documentedRights(): readonly string[] {
  const page = readFileSync(new URL("../../../docs/stores/mongodb.md", import.meta.url), "utf8");
  const list = /As single actions on the collection: (.+?)\./s.exec(page)?.[1] ?? "";
  return [...list.replaceAll(/\(.+?\)/gs, "").matchAll(/`(\w+)`/g)].map(([, action]) => action!);
}

const runs = await canRunMongod("mongodb: the tests of rights");

describe.skipIf(!runs)("mongodb: rights", { timeout: 40_000 }, () => {
  let server: GuardedMongodb;
  let root: MongoClient;
  beforeAll(async () => {
    server = await startGuardedMongodb();
    root = new MongoClient(server.urlFor(server.root));
    await addUser("known", { role: "readWrite", db: "strangers" });
  }, 60_000);
  afterAll(async () => {
    await root?.close();
    await server?.stop();
  });

  /** A user who may do this in one collection of one database, and nothing else. */
  async function makeUser(database: string, actions: readonly string[]): Promise<Login> {
    const privileges = [{ resource: { db: database, collection: "holdfast" }, actions }];
    await root.db("admin").command({ createRole: database, privileges, roles: [] });
    return addUser(database, { role: database, db: "admin" });
  }

  async function addUser(username: string, role: { role: string; db: string }): Promise<Login> {
    await root.db("admin").command({ createUser: username, pwd: "secret", roles: [role] });
    return { username, password: "secret" };
  }

  /** Everything but the marker. */
  const recordsIn = (database: string) =>
    root
      .db(database)
      .collection("holdfast")
      .find({ _id: { $type: "string" } } as object)
      .toArray();

  function open(url: string, database: string, options: MongodbStoreOptions = {}) {
    const client = new MongoClient(url, { monitorCommands: true });
    const refused: string[] = [];
    const succeeded: string[] = [];
    client.on("commandSucceeded", ({ commandName }) => succeeded.push(commandName));
    client.on("commandFailed", ({ commandName, failure }) => {
      if ((failure as { code?: number }).code === 13) refused.push(commandName);
    });
    const locks = createLocks(mongodbStore(client.db(database), options), { onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      await client.close();
    });
    return { locks, refused, succeeded };
  }

  /** All that there is to do, until old records are swept. Whatever was refused has come to nobody's notice. */
  async function useAll(user: Login, database: string, options: MongodbStoreOptions = {}) {
    const sweeping = { ...options, requestTimeoutMs: 2_000, keepIdleMs: 2_001 };
    const [one, other] = [1, 2].map(() => open(server.urlFor(user), database, sweeping));
    const [first, second] = [one!.locks, other!.locks];
    const lease = await first.mutex("k", { ttlMs: 5_000 }).acquire();
    expect(await second.mutex("k").tryAcquire()).toBeNull();
    const waiting = second.mutex("k", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    await until("it waits", async () => (await first.inspect("k")).waitingCount === 1);
    await lease.extend(10_000);
    const keys: string[] = [];
    for await (const { key } of first.list()) keys.push(key);
    expect(keys).toEqual(["k"]);
    expect(await lease.release()).toBe(true);
    // The waiter's own heartbeats are 20 s apart.
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lease.fence);
    expect(await first.forceRelease("k", next.id)).toBe(true);
    const short = await first.mutex("short", { ttlMs: 1_000, renew: false }).acquire();
    const afterwards = await second.mutex("short", { ttlMs: 5_000 }).acquire({ waitMs: 15_000 });
    expect(afterwards.fence).toBeGreaterThan(short.fence);
    expect(await afterwards.release()).toBe(true);
    await until("old records are swept", async () => (await recordsIn(database)).length === 0);
    const commands = (of: "refused" | "succeeded") => new Set([...one![of], ...other![of]]);
    return { refused: [...commands("refused")], succeeded: commands("succeeded") };
  }

  test("the role readWrite is enough", async () => {
    const user = await addUser("worker", { role: "readWrite", db: "roles" });
    const { refused, succeeded } = await useAll(user, "roles");
    expect(refused).toEqual([]);
    expect(succeeded).toContain("getMore");
  });

  test("the documented actions are enough", async () => {
    const user = await makeUser("documented", documentedRights());
    const { refused, succeeded } = await useAll(user, "documented");
    expect(refused).toEqual([]);
    expect(succeeded).toContain("getMore");
    const indexes = await root.db("documented").collection("holdfast").indexes();
    expect(indexes.map(({ name }) => name)).toContain("holdfast_keep_until");
  });

  test("without createIndex they are, if the option is false", async () => {
    const user = await makeUser(
      "indexed",
      documentedRights().filter((action) => action !== "createIndex"),
    );
    expect((await useAll(user, "indexed", { createIndex: false })).refused).toEqual([]);
  });

  test("without changeStream waiters are served as well, before their next heartbeat", async () => {
    const user = await makeUser(
      "deaf",
      documentedRights().filter((action) => action !== "changeStream"),
    );
    const { refused, succeeded } = await useAll(user, "deaf");
    expect(refused).toEqual(["aggregate"]);
    expect(succeeded).not.toContain("getMore");
  });

  test.each([
    ["find", "find"],
    ["insert", "insert or update"],
    ["update", "insert or update"],
    ["remove", "remove"],
    ["createIndex", "createIndex"],
  ])("without %s it is told what is missing, and no record is written", async (right, told) => {
    const database = `no-${right}`;
    const actions = documentedRights();
    expect(actions).toContain(right);
    const user = await makeUser(
      database,
      actions.filter((action) => action !== right),
    );
    const { locks } = open(server.urlFor(user), database);
    const asked = () => [
      locks.mutex("free").tryAcquire(),
      locks.mutex("other").acquire(),
      locks.inspect("free"),
      locks.list()[Symbol.asyncIterator]().next(),
    ];
    // A store that failed at first use tries again with the next call.
    for (const _ of [1, 2]) {
      for (const error of await Promise.all(asked().map(failure))) {
        expect(error.code).toBe("UNAUTHORIZED");
        expect(error.message).toContain(`lacks ${told} on "${database}.holdfast"`);
        expect(error.message).toContain("docs/stores/mongodb.md");
      }
    }
    expect(await recordsIn(database)).toEqual([]);
  });

  test("a right that is taken away later is named, and held locks stay", async () => {
    const user = await makeUser("revoked", documentedRights());
    const { locks } = open(server.urlFor(user), "revoked");
    await locks.mutex("held", { ttlMs: 120_000, renew: false }).acquire();
    const before = await recordsIn("revoked");
    await root.db("admin").command({ updateRole: "revoked", privileges: [] });
    for (const asked of [locks.mutex("free").tryAcquire(), locks.mutex("held").tryAcquire()]) {
      expect(await failure(asked)).toMatchObject({
        code: "UNAUTHORIZED",
        message: expect.stringContaining("docs/stores/mongodb.md"),
      });
    }
    expect(await recordsIn("revoked")).toEqual(before);
  });

  test.each<[string, Login | undefined, string]>([
    ["no login", undefined, "The client has not logged in"],
    ["a wrong password", { username: "known", password: "wrong" }, "password"],
    ["an unknown user", { username: "nobody", password: "secret" }, "password"],
  ])("%s is told, each time, and nothing is written", async (_, user, what) => {
    const url = user === undefined ? server.url : server.urlFor(user);
    const { locks } = open(url, "strangers");
    for (const _ of [1, 2]) {
      for (const asked of [locks.mutex("k").tryAcquire(), locks.mutex("k").acquire()]) {
        expect(await failure(asked)).toMatchObject({
          code: "UNAUTHORIZED",
          message: expect.stringContaining(what),
        });
      }
    }
    expect(await root.db("strangers").listCollections().toArray()).toEqual([]);
  });
});
