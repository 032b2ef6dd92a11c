import { existsSync } from "node:fs";
import { type Collection, MongoClient } from "mongodb6";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isRunning, until } from "./engine.ts";
import { canRunMongodb, type MongodbServer, startMongodb } from "./mongodb.ts";

interface Versioned {
  _id: string;
  version: number;
  by?: number;
}

describe.skipIf(!(await canRunMongodb()))("MongoDB", () => {
  let server: MongodbServer;
  let client: MongoClient;
  let records: Collection<Versioned>;

  beforeAll(async () => {
    server = await startMongodb();
    connectAgain();
  }, 60_000);
  afterAll(async () => {
    await client.close();
    await server.stop();
    expect([isRunning(server.process.pid!), existsSync(server.folder)]).toEqual([false, false]);
  });

  function connectAgain() {
    client = new MongoClient(server.url, { serverSelectionTimeoutMS: 2_000, maxPoolSize: 16 });
    records = client.db("holdfast").collection("records");
  }

  test.each<[string, (id: string, by: number) => Promise<boolean>]>([
    [
      "findOneAndUpdate",
      async (_id, by) => (await records.findOneAndUpdate({ _id, version: 0 }, swap(by))) !== null,
    ],
    [
      "updateOne",
      async (_id, by) => (await records.updateOne({ _id, version: 0 }, swap(by))).modifiedCount === 1,
    ],
    [
      "bulkWrite",
      async (_id, by) => {
        const updateOne = { filter: { _id, version: 0 }, update: swap(by) };
        return (await records.bulkWrite([{ updateOne }], { ordered: false })).modifiedCount === 1;
      },
    ],
  ])("%s with a version in its filter has one winner", async (verb, attempt) => {
    for (let round = 0; round < 20; round++) {
      const _id = `${verb}-${round}`;
      await records.insertOne({ _id, version: 0 });
      const won = await Promise.all(Array.from({ length: 8 }, (_, by) => attempt(_id, by)));
      expect(won.filter(Boolean)).toHaveLength(1);
      expect((await records.findOne({ _id }))?.by).toBe(won.indexOf(true));
    }
  });

  test("an _id that is there is refused with code 11000, when inserted and by an upsert that missed", async () => {
    await records.insertOne({ _id: "there", version: 1 });
    await expect(records.insertOne({ _id: "there", version: 1 })).rejects.toMatchObject({ code: 11_000 });
    const upsert = records.updateOne({ _id: "there", version: 7 }, swap(1), { upsert: true });
    await expect(upsert).rejects.toMatchObject({ code: 11_000 });
  });

  test("tells its time in an aggregation and through isMaster", async () => {
    await records.insertOne({ _id: "time", version: 1 });
    const [row] = await records.aggregate([{ $limit: 1 }, { $project: { now: "$$NOW" } }]).toArray();
    expect(row?.["now"]).toBeInstanceOf(Date);
    expect((await client.db("admin").command({ isMaster: 1 }))["localTime"]).toBeInstanceOf(Date);
  });

  test("updates by a pipeline only where it is MongoDB itself", async () => {
    await records.insertOne({ _id: "pipeline", version: 1 });
    const update = records.updateOne({ _id: "pipeline" }, [{ $set: { at: "$$NOW" } }]);
    if (server.isMongod) expect((await update).modifiedCount).toBe(1);
    else await expect(update).rejects.toThrow();
  });

  test("is paused and goes on", async () => {
    server.pause();
    let answer: Promise<string> = Promise.resolve("");
    // A moment may pass until the last of its threads has stopped.
    await until("it is silent", async () => {
      answer = records.countDocuments().then(() => "answer");
      return (await Promise.race([answer, silence(200)])) === "silence";
    });
    server.resume();
    expect(await answer).toBe("answer");
  });

  test("is killed, and answers on the same port when started again", async () => {
    await server.kill();
    await client.close();
    await server.restart();
    connectAgain();
    await records.insertOne({ _id: "again", version: 1 });
    expect((await records.findOne({ _id: "again" }))?.version).toBe(1);
  });
});

function swap(by: number) {
  return { $set: { version: 1, by } };
}

function silence(ms: number): Promise<string> {
  return new Promise((resolve) => setTimeout(() => resolve("silence"), ms));
}
