/** What goes to the server: how much, when, and what becomes of it where something is in the way. */
import { setTimeout as sleep } from "node:timers/promises";
import { type ClaimRequest, createLocks, type HoldfastError, type Store } from "holdfast";
import { type MongodbStoreOptions, mongodbStore } from "holdfast/mongodb";
import { MongoClient as MongoClient7 } from "mongodb";
import { type Db, MongoClient } from "mongodb6";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import { recordsIn } from "../../../src/stores/mongodb/client.ts";
import { MongodbDriver } from "../../../src/stores/mongodb/driver.ts";
import { MARKER } from "../../../src/stores/mongodb/statements.ts";
import { freePort, until } from "../../engines/engine.ts";
import { canRunMongodb, type MongodbServer, startMongodb } from "../../engines/mongodb.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { testDamagedRecords } from "../damaged-records.ts";
import { failure } from "../failure.ts";

describe.skipIf(!(await canRunMongodb()))("mongodb: requests", () => {
  let server: MongodbServer;
  let databases = 0;
  let timeCommand: string;

  beforeAll(async () => {
    server = await startMongodb();
    const client = new MongoClient(server.url);
    const asked = client.db().command({ hello: 1 });
    timeCommand = await asked.then(
      () => "hello",
      () => "isMaster",
    );
    await client.close();
  }, 60_000);
  afterAll(() => server?.stop());

  /** A store in a database of its own, and the commands that its client has begun and ended. */
  function open(context: TestContext, options: MongodbStoreOptions = {}, name = `requests-${++databases}`) {
    const client = new MongoClient(server.url, { monitorCommands: true });
    const events: string[] = [];
    client.on("commandStarted", ({ commandName, command }) => {
      events.push(commandName === "update" ? `update ${command["updates"].length}` : commandName);
    });
    client.on("commandSucceeded", () => events.push("done"));
    // No sweep comes by chance while commands are counted.
    const store = mongodbStore(client.db(name), { random: () => 0.99, ...options });
    context.onTestFinished(async () => {
      await store.close();
      await client.close();
    });
    return { client, database: client.db(name), store, events };
  }

  const oneRoundTrip = (changes: number) => [[timeCommand, `update ${changes}`], "done", "done"];
  /** Those that were under way together are in no order. */
  const sorted = (events: readonly string[]) => [[...events.slice(0, 2)].sort(), ...events.slice(2)];

  test("an acquire and a release take one round trip each", async (context) => {
    const { store, events } = open(context);
    await store.acquire(request("warm"));
    events.length = 0;
    expect(await store.acquire(request("one"))).toMatchObject({ state: "held" });
    expect(sorted(events)).toEqual(oneRoundTrip(1));
    events.length = 0;
    expect(await store.release([{ key: "one", id: "one", token: "token" }])).toEqual([true]);
    expect(sorted(events)).toEqual(oneRoundTrip(1));
  });

  test("many keys take one round trip as well", async (context) => {
    const { store, events } = open(context);
    await store.acquire(request("warm"));
    events.length = 0;
    const keys = Array.from({ length: 100 }, (_, index) => `key ${index}`);
    const answers = await Promise.all(keys.map((key) => store.acquire(request(key))));
    expect(new Set(answers.map(({ state }) => state))).toEqual(new Set(["held"]));
    expect(sorted(events)).toEqual(oneRoundTrip(100));
    events.length = 0;
    const released = await store.release(keys.map((key) => ({ key, id: key, token: "token" })));
    expect(new Set(released)).toEqual(new Set([true]));
    expect(sorted(events)).toEqual(oneRoundTrip(100));
  });

  test("a conflict takes one more, for all that were refused", async (context) => {
    const { store, events, database } = open(context);
    const other = open(context, {}, database.databaseName);
    const keys = Array.from({ length: 10 }, (_, index) => `key ${index}`);
    await store.acquire(request("warm"));
    await Promise.all(keys.map((key) => other.store.acquire(request(key, "other"))));
    events.length = 0;
    const answers = await Promise.all(keys.map((key) => store.acquire(request(key))));
    expect(new Set(answers.map(({ state }) => state))).toEqual(new Set(["refused"]));
    // The insert that met another record, a look at it, and the comparison that the refusal rests upon.
    expect(events.filter((event) => event !== "done" && event !== timeCommand)).toEqual([
      "update 10",
      "find",
      "update 10",
    ]);
  });

  test("the first use creates the index, unless createIndex is false", async (context) => {
    const [made, left] = [open(context), open(context, { createIndex: false })];
    for (const { store } of [made, left]) await store.acquire(request("key"));
    const namesOf = async ({ database }: typeof made) =>
      (await database.collection("holdfast").indexes()).map(({ name }) => name);
    expect(await namesOf(made)).toContain("holdfast_keep_until");
    expect(await namesOf(left)).not.toContain("holdfast_keep_until");
  });

  describe("a collection that would not keep locks is refused, and left as it is", () => {
    async function refused(context: TestContext, make: (database: Db) => Promise<unknown>) {
      const { database, store } = open(context);
      await make(database);
      const error = await failure(store.acquire(request("key")));
      expect(error).toMatchObject({ code: "STORE_FAILURE" });
      expect(await database.collection("holdfast").countDocuments()).toBe(0);
      return error.message;
    }

    test.for([
      [{ expireAfterSeconds: 10 }, 'has the index "made_1" with expireAfterSeconds'],
      [{ unique: true }, 'has the index "made_1", which is unique'],
    ] as const)("for its index: %o", async ([options, fault], context) => {
      const message = await refused(context, (database) =>
        database.collection("holdfast").createIndex({ made: 1 }, options),
      );
      expect(message).toContain(`.holdfast" ${fault}`);
      expect(message).toContain("Choose another collection");
    });

    test.for([
      [{ capped: true, size: 100_000 }, "is capped"],
      [{ collation: { locale: "de", strength: 1 } }, "has a collation"],
    ] as const)("for what it is: %o", async ([options, fault], context) => {
      if (!server.isMongod) return context.skip("What stands in for MongoDB has neither.");
      const message = await refused(context, (database) => database.createCollection("holdfast", options));
      expect(message).toContain(`.holdfast" ${fault}`);
    });
  });

  test("records are in the collection that is named or passed", async (context) => {
    const { client, database } = open(context);
    const named = mongodbStore(database, { collection: "named" });
    const passed = mongodbStore(database.collection("passed"));
    for (const store of [named, passed]) {
      await store.acquire(request("key"));
      await store.close();
    }
    for (const name of ["named", "passed"]) {
      expect(await database.collection<{ _id: string }>(name).findOne({ _id: "key" })).toMatchObject({
        version: expect.any(String),
        text: expect.stringContaining('"held":[{'),
        idle: false,
        keepUntil: expect.any(Date),
      });
    }
    // The store was closed, and not the client.
    expect(await client.db().command({ ping: 1 })).toMatchObject({ ok: 1 });
  });

  test("a document of another program is left as it is, and reported", async (context) => {
    const { store, database } = open(context);
    const collection = database.collection<{ _id: string }>("holdfast");
    const document = { _id: "strange", name: "Ann" };
    await collection.insertOne(document);
    const [strange, other] = await Promise.all([
      failure(store.acquire(request("strange"))),
      store.acquire(request("other")),
    ]);
    expect(strange).toMatchObject({ code: "STORE_FAILURE", key: "strange" });
    expect(strange.message).toMatch(/Another program wrote the document/);
    expect(other).toMatchObject({ state: "held" });
    expect(await collection.findOne({ _id: "strange" })).toEqual(document);
  });

  describe("records", () => {
    let client: MongoClient;
    beforeAll(() => {
      client = new MongoClient(server.url);
    });
    afterAll(() => client?.close());
    type Document = { _id: string; version: string; text: string; idle: boolean };
    const records = () => client.db("records").collection<Document>("holdfast");

    testDamagedRecords({
      put: (key, text) => records().insertOne({ _id: key, version: "a", text, idle: false }),
      textOf: async (key) => (await records().findOne({ _id: key, version: "a" }))?.text,
      open: () => mongodbStore(client.db("records")),
    });
  });

  test("a lone server is no quorum, and nothing is written to it", async (context) => {
    if (server.isMongod) return context.skip("It is a replica set.");
    const { store, database } = open(context, { durability: "quorum" });
    expect(store.durability).toBe("quorum");
    await expect(store.acquire(request("key"))).rejects.toMatchObject({ code: "DURABILITY_UNAVAILABLE" });
    expect(await database.listCollections().toArray()).toEqual([]);
  });

  test("old records are swept in batches, younger ones stay", async () => {
    const client = new MongoClient(server.url);
    const database = client.db(`requests-${++databases}`);
    const options = { durability: "local", createIndex: true, timeoutMs: 5_000 } as const;
    const driver = new MongodbDriver(recordsIn(database, undefined, 5_000), options);
    const { nowMs } = await driver.read([]);
    const change = { expected: undefined, text: "{}", idle: true, dropped: [], wakes: [] };
    const changes = Array.from({ length: 5 }, (_, index) => ({
      ...change,
      key: `${index}`,
      keepUntilMs: index < 4 ? nowMs - 1 : nowMs + 60_000,
    }));
    await driver.swap({ changes, earliestMs: nowMs, latestMs: nowMs + 60_000 });
    expect([await driver.sweep(3), await driver.sweep(3), await driver.sweep(3)]).toEqual([3, 1, 0]);
    const left = await database.collection("holdfast").find().toArray();
    expect(left.map(({ _id }) => _id as unknown)).toEqual(expect.arrayContaining(["4", MARKER]));
    expect(left).toHaveLength(2);
    await client.close();
  });

  test("a store sweeps its old records", async (context) => {
    const { store, database } = open(context, { requestTimeoutMs: 1_000, keepIdleMs: 1_001 });
    await store.acquire(request("short"));
    await store.release([{ key: "short", id: "short", token: "token" }]);
    const records = database.collection<{ _id: string }>("holdfast");
    expect(await records.findOne({ _id: "short" })).not.toBeNull();
    await until("it is gone", async () => (await records.findOne({ _id: "short" })) === null, 10_000);
  });

  // The insert asks for another `_id` than its filter, which the server refuses, or meets the marker.
  test("a version that is expected of a record that is gone is a conflict, also without the marker", async () => {
    const client = new MongoClient(server.url);
    const database = client.db(`requests-${++databases}`);
    const options = { durability: "local", createIndex: true, timeoutMs: 5_000 } as const;
    const driver = new MongodbDriver(recordsIn(database, undefined, 5_000), options);
    const { nowMs } = await driver.read([]);
    await database.collection("holdfast").deleteMany({});
    const change = { key: "gone", text: "{}", idle: false, keepUntilMs: nowMs, dropped: [], wakes: [] };
    const changes = [{ ...change, expected: "some" }];
    const { results } = await driver.swap({ changes, earliestMs: nowMs, latestMs: nowMs + 60_000 });
    expect(results).toEqual([{ state: "conflict", current: undefined }]);
    expect((await driver.read(["gone"])).records).toEqual([undefined]);
    await client.close();
  });

  test("a waiter is heard as soon as the server has opened the change stream", async (context) => {
    if (!server.isMongod) return context.skip("It has no change streams.");
    const { store, events, client } = open(context);
    await store.acquire(request("key"));
    // MongoDB answers this one after a second without changes.
    const answered: string[] = [];
    client.on("commandSucceeded", ({ commandName }) => answered.push(commandName));
    const unsubscribe = store.onGrant("waiter", () => {});
    const waiter = { ...request("key"), id: "waiter", owner: "waiter", wait: true };
    expect(await store.acquire(waiter)).toMatchObject({ state: "waiting" });
    expect(answered).toContain("aggregate");
    expect(answered).not.toContain("getMore");
    await until("the stream is followed", async () => events.includes("getMore"));
    unsubscribe();
  });

  test("a client that is closed is a failure that says so", async () => {
    const client = new MongoClient(server.url);
    const store = mongodbStore(client.db(`requests-${++databases}`));
    await store.acquire(request("key"));
    await client.close();
    const failing = store.acquire(request("other"));
    await expect(failing).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("The client is closed"),
    });
    await store.close();
    await client.close();
  });

  test("a server that is not there is an outage", async () => {
    const port = await freePort();
    const client = new MongoClient(`mongodb://127.0.0.1:${port}`, { serverSelectionTimeoutMS: 100 });
    const store = mongodbStore(client.db("nowhere"));
    await expect(store.acquire(request("key"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await store.close();
    await client.close();
  });

  describe.each([
    ["driver 6", MongoClient],
    ["driver 7", MongoClient7],
  ])("a server that is down at first use, through %s", (name, Client) => {
    test("is an outage each time, and is used as soon as it is up", { timeout: 60_000 }, async (context) => {
      await server.kill();
      let isDown = true;
      context.onTestFinished(() => (isDown ? server.restart() : undefined));
      const client = new Client(server.url, { serverSelectionTimeoutMS: 150 });
      const store = mongodbStore(client.db(`requests-${++databases}`));
      const locks = createLocks(store, { requestTimeoutMs: 400, onWarning() {} });
      context.onTestFinished(async () => {
        await locks.close();
        await client.close();
      });
      // The first request finds no server, and those after it find a client that has given up.
      for (const _ of [1, 2]) {
        const asked = await Promise.all([
          failure(locks.mutex("key").tryAcquire()),
          failure(locks.mutex("other").acquire()),
        ]);
        expect(asked.map(({ code }) => code)).toEqual(["STORE_UNAVAILABLE", "STORE_UNAVAILABLE"]);
        for (const { message } of asked) expect(message).toContain("Check that the servers are up");
      }
      expect(await locks.mutex("key", { onUnavailable: "skip" }).tryAcquire()).toBeNull();
      await server.restart();
      isDown = false;
      // Version 7 of the driver refuses a server before 4.4, which it has to reach for that.
      const isTooOld = name === "driver 7" && server.wireVersion < 9;
      const expected = isTooOld ? "UNSUPPORTED" : "held";
      // The server has answered others, but a busy machine may take longer than this client waits.
      await until("the store is used", async () => {
        const outcome = await locks
          .mutex("key")
          .tryAcquire()
          .then(
            () => "held",
            (error: HoldfastError) => error.code,
          );
        expect([expected, "STORE_UNAVAILABLE"]).toContain(outcome);
        return outcome === expected;
      });
    });

    test("is no reason to open a client again that its owner has closed", async () => {
      const client = new Client(`mongodb://127.0.0.1:${await freePort()}`, { serverSelectionTimeoutMS: 100 });
      const store = mongodbStore(client.db("nowhere"));
      expect(await failure(store.acquire(request("key")))).toMatchObject({ code: "STORE_UNAVAILABLE" });
      await client.close();
      const opened: string[] = [];
      client.on("topologyOpening", () => opened.push("opening"));
      expect(await failure(store.acquire(request("key")))).toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringContaining("The client is closed"),
      });
      expect(opened).toEqual([]);
      await store.close();
    });

    test("is no reason to open it again where it is closed while a request waits", async () => {
      const client = new Client(`mongodb://127.0.0.1:${await freePort()}`);
      const store = mongodbStore(client.db("nowhere"));
      const opened: string[] = [];
      client.on("topologyOpening", () => opened.push("opening"));
      const asked = failure(store.acquire(request("key")));
      await until("the client looks for a server", async () => opened.length === 1);
      await client.close();
      expect(await asked).toMatchObject({ code: "STORE_FAILURE" });
      expect(opened).toEqual(["opening"]);
      await store.close();
    });
  });

  test("a store that is closed leaves nothing under way, with waiters or without", async (context) => {
    const { store, events, client } = open(context);
    const locks = createLocks(store, { closeStore: false });
    const lease = await locks.mutex("key").acquire();
    const waiting = locks.mutex("key").acquire();
    const outcome = expect(waiting).rejects.toMatchObject({ code: "CLOSED" });
    await until("somebody waits", async () => (await locks.inspect("key")).waitingCount === 1);
    await locks.close();
    await outcome;
    expect(lease.held).toBe(false);
    await store.close();
    events.length = 0;
    await sleep(300);
    expect(events).toEqual([]);
    expect(await client.db().command({ ping: 1 })).toMatchObject({ ok: 1 });
    await expect((store as Store).acquire(request("key"))).rejects.toMatchObject({ code: "CLOSED" });
  });
});

function request(key: string, id = key): ClaimRequest {
  return claimRequest(id, { key, token: "token", ttlMs: 30_000, wait: false });
}
