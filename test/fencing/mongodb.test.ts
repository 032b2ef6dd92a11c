import { randomUUID } from "node:crypto";
import { createLocks } from "holdfast";
import { fencedFilter, fencedUpdate, fencedUpdateOne, MAX_FENCE } from "holdfast/fencing";
import type { Collection as Collection7 } from "mongodb";
import { type Collection, Decimal128, Double, Long, MongoClient } from "mongodb6";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canRunMongodb, type MongodbServer, startMongodb } from "../engines/mongodb.ts";
import { checkRegister } from "./register-model.ts";

interface Report {
  _id: string;
  body?: string;
  fence?: bigint;
  history?: string[];
}

/** As somebody else may have written it. */
interface Foreign {
  _id: string;
  body?: string;
  fence: unknown;
}

const stale = { code: "STALE_FENCE" };

describe.skipIf(!(await canRunMongodb()))("mongodb: fenced writes", () => {
  let server: MongodbServer;
  let client: MongoClient;
  let reports: Collection<Report>;

  beforeAll(async () => {
    server = await startMongodb();
    client = new MongoClient(server.url);
    reports = client.db("fencing").collection<Report>("reports");
  }, 60_000);

  afterAll(async () => {
    await client?.close();
    await server?.stop();
  });

  async function write(_id: string, body: string, fence: bigint) {
    return fencedUpdateOne(reports, { _id }, { $set: { body } }, { fence }, { upsert: true });
  }

  async function bodyOf(_id: string): Promise<unknown> {
    return (await reports.findOne({ _id }))?.body;
  }

  test("the same holder writes many times, a newer one takes over, and the older one is refused", async () => {
    const id = randomUUID();
    expect(await write(id, "a", 5n)).toMatchObject({ upsertedCount: 1 });
    expect(await write(id, "b", 5n)).toMatchObject({ matchedCount: 1 });
    await write(id, "c", 6n);
    await expect(write(id, "d", 5n)).rejects.toMatchObject({ ...stale, key: id, fence: 5n, mark: 6n });
    expect(await bodyOf(id)).toBe("c");
  });

  test("the fragments do the same in a statement of one's own", async () => {
    const id = randomUUID();
    await reports.insertOne({ _id: id, body: "unfenced" });
    const own = (fence: bigint) =>
      reports.updateOne(
        fencedFilter({ _id: id }, { fence }),
        fencedUpdate({ $set: { body: String(fence) }, $push: { history: "x" } }, { fence }),
      );
    expect(await own(6n)).toMatchObject({ matchedCount: 1 });
    expect(await own(5n)).toMatchObject({ matchedCount: 0 });
    expect(await own(6n)).toMatchObject({ matchedCount: 1 });
    expect(await reports.findOne({ _id: id })).toMatchObject({ body: "6", history: ["x", "x"] });
  });

  test("without upsert, a document that is not there is no stale fence", async () => {
    const id = randomUUID();
    const missing = await fencedUpdateOne(reports, { _id: id }, { $set: { body: "a" } }, { fence: 5n });
    expect(missing).toMatchObject({ matchedCount: 0, upsertedCount: 0 });
    await write(id, "new", 6n);
    const refused = fencedUpdateOne(reports, { _id: id }, { $set: { body: "a" } }, { fence: 5n });
    await expect(refused).rejects.toMatchObject(stale);
  });

  test("fences are compared to the last digit, up to the highest", async () => {
    for (const newer of [2n ** 53n + 1n, MAX_FENCE]) {
      const id = randomUUID();
      await write(id, "new", newer);
      await expect(write(id, "old", newer - 1n)).rejects.toMatchObject({ ...stale, mark: newer });
      await write(id, "new", newer);
    }
  });

  test.each<[string, unknown]>([
    ["a text", "5"],
    ["a double", new Double(5)],
    ["a decimal", Decimal128.fromString("5")],
    ["nothing", null],
    ["a date", new Date(5)],
    ["an object", {}],
    ["a list of fences", [Long.fromNumber(4)]],
    ["an empty list", []],
  ])("a document whose fence is %s is refused, and stays as it is", async (_, fence) => {
    const id = randomUUID();
    await client.db("fencing").collection<Foreign>("reports").insertOne({ _id: id, body: "old", fence });
    for (const upsert of [true, false]) {
      const write = fencedUpdateOne(
        reports,
        { _id: id },
        { $set: { body: "new" } },
        { fence: 7n },
        { upsert },
      );
      await expect(write).rejects.toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringContaining('"fence"'),
      });
    }
    expect(await bodyOf(id)).toBe("old");
  });

  test("a document that was made with a small whole number is compared with it", async () => {
    const id = randomUUID();
    await client.db("fencing").collection<Foreign>("reports").insertOne({ _id: id, fence: 6 });
    await expect(write(id, "old", 5n)).rejects.toMatchObject({ ...stale, mark: 6n });
    await write(id, "new", 6n);
    expect(await bodyOf(id)).toBe("new");
  });

  test("of two that make a document at once, the older one is refused or comes first, and none fails", async () => {
    for (let round = 0; round < 20; round++) {
      const id = randomUUID();
      const fences = [5n, 6n, 6n, 5n];
      const results = await Promise.allSettled(fences.map((fence, place) => write(id, `${place}`, fence)));
      for (const [place, result] of results.entries()) {
        if (result.status === "rejected") {
          expect(result.reason).toMatchObject(stale);
          expect(fences[place]).toBe(5n);
        }
      }
      expect(["1", "2"]).toContain(await bodyOf(id));
    }
  });

  /** MongoDB may look for a document, and find that somebody else has made it when it wants to insert it: here it does. */
  function overtaken(_id: string, by: bigint) {
    let first = true;
    return {
      async updateOne(filter: never, update: never, options: never) {
        if (first) {
          first = false;
          await reports.insertOne({ _id, body: "somebody else's", fence: by });
          await reports.insertOne({ _id });
        }
        return reports.updateOne(filter, update, options);
      },
      findOne: (filter: never, options: never) => reports.findOne(filter, options),
    };
  }

  test.each([
    ["an older one", 4n],
    ["the same holder", 5n],
  ])("a document that %s made at the same moment is written all the same", async (_, by) => {
    const id = randomUUID();
    const collection = overtaken(id, by);
    await fencedUpdateOne(collection, { _id: id }, { $set: { body: "a" } }, { fence: 5n }, { upsert: true });
    expect(await bodyOf(id)).toBe("a");
  });

  test("a document that a newer one made at the same moment is not", async () => {
    const id = randomUUID();
    const collection = overtaken(id, 6n);
    const refused = fencedUpdateOne(
      collection,
      { _id: id },
      { $set: { body: "a" } },
      { fence: 5n },
      { upsert: true },
    );
    await expect(refused).rejects.toMatchObject({ ...stale, mark: 6n });
    expect(await bodyOf(id)).toBe("somebody else's");
  });

  test("another unique index of the caller's is the caller's own matter", async () => {
    const named = client.db("fencing").collection<{ _id: string; name: string }>("named");
    await named.createIndex({ name: 1 }, { unique: true });
    await named.insertOne({ _id: "a", name: "taken" });
    const taken = fencedUpdateOne(
      named,
      { _id: "b" },
      { $set: { name: "taken" } },
      { fence: 5n },
      { upsert: true },
    );
    await expect(taken).rejects.toMatchObject({ code: 11_000 });
  });

  test("a lease that is known to be lost is refused before anything is sent", async () => {
    const id = randomUUID();
    const locks = createLocks();
    const lease = await locks.mutex("report").acquire();
    await fencedUpdateOne(reports, { _id: id }, { $set: { body: "a" } }, lease, { upsert: true });
    await lease.release();
    const late = fencedUpdateOne(reports, { _id: id }, { $set: { body: "b" } }, lease, { upsert: true });
    await expect(late).rejects.toMatchObject({ code: "NOT_HELD" });
    expect(await bodyOf(id)).toBe("a");
    await locks.close();
  });

  test("writers in any order agree with the model", async () => {
    await checkRegister({
      runs: 25,
      rollsBack: false,
      async write({ resource, fence, value }) {
        const update = { $push: { history: `${fence} ${value}` } };
        await fencedUpdateOne(reports, { _id: resource }, update, { fence }, { upsert: true });
      },
      async written(resource) {
        const { history = [] } = (await reports.findOne({ _id: resource })) ?? {};
        return history.map((line) => {
          const [fence = "", value = ""] = line.split(" ");
          return { fence: BigInt(fence), value };
        });
      },
    });
  });
});

describe("mongodb: fragments", () => {
  const lease = { fence: 5n };

  test("a pipeline gets one more stage, and operators one more field", () => {
    expect(fencedUpdate([{ $set: { a: 1 } }], lease)).toEqual([{ $set: { a: 1 } }, { $set: { fence: 5n } }]);
    expect(fencedUpdate({ $set: { a: 1 }, $inc: { n: 1 } }, lease, { field: "by" })).toEqual({
      $set: { a: 1, by: 5n },
      $inc: { n: 1 },
    });
  });

  test("what is wrong with a call is told", async () => {
    const invalid = expect.objectContaining({ code: "INVALID_ARGUMENT" });
    expect(() => fencedFilter({ fence: 1 }, lease)).toThrow(invalid);
    expect(() => fencedFilter(null as never, lease)).toThrow(invalid);
    expect(() => fencedUpdate({ body: "a" }, lease)).toThrow(invalid);
    for (const field of ["", "$a", "a.b", "_id"])
      expect(() => fencedFilter({}, lease, { field })).toThrow(invalid);
    await expect(fencedUpdateOne({} as never, {}, {}, lease)).rejects.toThrow(invalid);
    const collection = { updateOne: () => expect.fail("Sent."), findOne: () => expect.fail("Sent.") };
    await expect(fencedUpdateOne(collection, {}, { $set: {} }, lease, { upsert: true })).rejects.toThrow(
      invalid,
    );
  });

  test("a collection of version 7 of the driver will do", () => {
    // For the compiler; nothing is sent.
    const typed = (collection: Collection7<Report>) =>
      fencedUpdateOne(collection, { _id: "a" }, { $set: { body: "b" } }, lease);
    expect(typed).toBeTypeOf("function");
  });
});
