/** MongoDB: the store against the lock that people write themselves, a document that is inserted or has expired. */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Store } from "holdfast";
import { mongodbStore } from "holdfast/mongodb";
import { type Collection, MongoClient } from "mongodb6";
import { startMongodb } from "../../test/engines/mongodb.ts";
import type { OpenContender } from "./contender.ts";

const TTL_MS = 30_000;
/** How soon the peer asks again for a key that is taken. */
const RETRY_MS = 20;
const DUPLICATE_KEY = 11_000;

interface LockDocument {
  readonly _id: string;
  readonly token: string;
  readonly expiresAt: Date;
}

export async function openMongodb(): Promise<OpenContender> {
  const server = await startMongodb();
  const peerClient = new MongoClient(server.url);
  const clients = [peerClient];
  const stores: Store[] = [];
  let roundTrips = 0;
  const locks = peerClient.db("bench").collection<LockDocument>("locks");
  return {
    async newStore() {
      const client = new MongoClient(server.url, { monitorCommands: true });
      clients.push(client);
      // The time is asked for beside each other request, and does not make anybody wait for longer.
      client.on("commandStarted", ({ commandName }) => {
        if (commandName !== "hello" && commandName !== "isMaster") roundTrips++;
      });
      const store = mongodbStore(client.db("bench"));
      stores.push(store);
      return store;
    },
    roundTrips: () => roundTrips,
    url: server.url,
    peers: { "findOneAndUpdate with upsert": (key) => upsertLock(locks, key) },
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      await Promise.all(clients.map((client) => client.close()));
      await server.stop();
    },
  };
}

/** By the clock of the client, without a queue, a fence or a heartbeat; confirmed like the store's own writes. */
async function upsertLock(locks: Collection<LockDocument>, key: string): Promise<() => Promise<void>> {
  const token = randomUUID();
  const writeConcern = { w: "majority", journal: true } as const;
  for (;;) {
    const nowMs = Date.now();
    try {
      await locks.findOneAndUpdate(
        { _id: key, expiresAt: { $lt: new Date(nowMs) } },
        { $set: { token, expiresAt: new Date(nowMs + TTL_MS) } },
        { upsert: true, writeConcern },
      );
      return async () => void (await locks.deleteOne({ _id: key, token }, { writeConcern }));
    } catch (error) {
      if ((error as { code?: unknown }).code !== DUPLICATE_KEY) throw error;
      await sleep(RETRY_MS);
    }
  }
}
