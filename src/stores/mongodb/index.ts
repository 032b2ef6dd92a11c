export type { MongodbChangeStream, MongodbCollection, MongodbDatabase } from "./client.ts";
export { mongodbStore } from "./mongodb-store.ts";
export type { MongodbStoreOptions } from "./options.ts";
