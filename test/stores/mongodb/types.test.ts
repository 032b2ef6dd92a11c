import { type MongodbCollection, type MongodbDatabase, mongodbStore } from "holdfast/mongodb";
import { MongoClient as Client7 } from "mongodb";
import { MongoClient as Client6 } from "mongodb6";
import { describe, expect, expectTypeOf, test } from "vitest";

/** Nothing is asked of them here, so they connect to nothing. */
const url = "mongodb://127.0.0.1:1";

describe("mongodb: arguments of the store", () => {
  test("a database or a collection of driver 6 and of driver 7", async () => {
    const [client6, client7] = [new Client6(url), new Client7(url)];
    expectTypeOf(client6.db()).toExtend<MongodbDatabase>();
    expectTypeOf(client7.db()).toExtend<MongodbDatabase>();
    expectTypeOf(client6.db().collection("locks")).toExtend<MongodbCollection>();
    expectTypeOf(client7.db().collection("locks")).toExtend<MongodbCollection>();
    for (const database of [client6.db(), client7.db()]) {
      for (const target of [database, database.collection("locks")]) {
        const store = mongodbStore(target);
        expect(store).toMatchObject({ name: "mongodb", durability: "local", counts: true });
        await store.close();
      }
    }
    await client6.close();
    await client7.close();
  });

  test("nothing else, and the error has the remedy", async () => {
    const client = new Client6(url);
    expect(() => mongodbStore(client as never)).toThrow(/MongoClient\. Pass client\.db\(\)/);
    for (const wrong of [undefined, null, "mongodb://", {}, { collectionName: "locks" }]) {
      expect(() => mongodbStore(wrong as never)).toThrow(/must be a Db or a Collection/);
    }
    await client.close();
  });

  test.each([
    ["collection", ["", "a b", "$a", "system.locks", "locks.", "x".repeat(121), 7]],
    ["createIndex", ["yes", 1, null]],
    ["durability", ["ephemeral", "majority", 1]],
    ["maxWaiters", [-1, 1.5, "1"]],
    ["requestTimeoutMs", [0, 9, Number.NaN]],
    ["keepIdleMs", [5_000, 0]],
    ["colection", ["locks"]],
  ])("%s is checked", (name, values) => {
    const database = new Client6(url).db();
    for (const value of values) {
      expect(() => mongodbStore(database, { [name]: value })).toThrow(
        expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining(name) }),
      );
    }
  });

  test("a collection is passed or named, not both", () => {
    const locks = new Client6(url).db().collection("locks");
    expect(() => mongodbStore(locks, { collection: "locks" })).toThrow(/collection must be left out/);
  });
});
