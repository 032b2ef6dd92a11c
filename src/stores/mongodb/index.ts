export type { MongodbChangeStream, MongodbCollection, MongodbDatabase } from "./database.ts";
export { type MongodbStoreOptions, mongodbStore } from "./mongodb-store.ts";
