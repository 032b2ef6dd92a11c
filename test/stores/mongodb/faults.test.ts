/** What all stores must survive. */
import { systemClock } from "holdfast";
import { mongodbStore } from "holdfast/mongodb";
import { MongoClient } from "mongodb6";
import { afterAll, beforeAll, describe } from "vitest";
import { canRunMongodb, type MongodbServer, startMongodb } from "../../engines/mongodb.ts";
import { serverFaults } from "../fault-suite.ts";

describe.skipIf(!(await canRunMongodb()))("mongodb: faults", { timeout: 40_000 }, () => {
  let server: MongodbServer;

  beforeAll(async () => {
    server = await startMongodb();
  }, 60_000);
  afterAll(() => server?.stop());

  function clientOf(port = server.port): MongoClient {
    const url = server.url.replace(`:${server.port}`, `:${port}`);
    return new MongoClient(url, { serverSelectionTimeoutMS: 2_000 });
  }

  serverFaults({
    connect({ port, clock = systemClock } = {}) {
      const client = clientOf(port);
      const store = mongodbStore(client.db("faults"), { maxPollMs: 100, clock });
      return { store, clock, end: () => client.close() };
    },
    holder: { store: "mongodb", target: () => server.url },
    stampsFences: true,
    engine: () => server,
    async forget() {
      const client = clientOf();
      await client.db("faults").collection("holdfast").deleteMany({});
      await client.close();
    },
    // What a swap contains and no other request does.
    swap: { contains: () => "keepUntil", cutAfterBytes: 100 },
    // The stand-in for MongoDB writes to its disk once a second.
    forgetsMs: () => (server.isMongod ? 0 : 1_500),
  });
});
