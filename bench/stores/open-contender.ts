/** Opens the store of a contender by its URL, as the other processes of the suite do. */
import type { Store } from "holdfast";
import { mongodbStore } from "holdfast/mongodb";
import { openStore } from "holdfast/open";
import { MongoClient } from "mongodb6";

export async function openContender(url: string): Promise<Store> {
  return url.startsWith("mongodb:") ? openMongodb(url) : openStore(url);
}

/** With the driver that the suite measures. The stand-in for MongoDB is too old for the newest one, which `openStore` takes. */
function openMongodb(url: string): Store {
  const client = new MongoClient(url);
  const store = mongodbStore(client.db("bench"));
  const close = store.close.bind(store);
  return Object.assign(store, { close: () => close().finally(() => client.close()) });
}
