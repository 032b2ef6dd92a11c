/** Opens the store of a contender by its URL, as the other processes of the suite do. */
import type { Store } from "holdfast";
import { openStore } from "holdfast/open";

export async function openContender(url: string): Promise<Store> {
  return url.startsWith("mongodb:") ? openMongodb(url) : openStore(url);
}

/** With the driver that the suite measures. The stand-in for MongoDB is too old for the newest one, which `openStore` takes. */
async function openMongodb(url: string): Promise<Store> {
  const { mongodbStore } = await import("holdfast/mongodb");
  const { MongoClient } = await import("mongodb6");
  const client = new MongoClient(url);
  const store = mongodbStore(client.db("bench"));
  const close = store.close.bind(store);
  return Object.assign(store, { close: () => close().finally(() => client.close()) });
}
