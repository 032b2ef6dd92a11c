export type { PostgresClient, PostgresListener, PostgresNotification, PostgresResult } from "./client.ts";
export { migratePostgres, type PostgresMigrationOptions, postgresMigration } from "./migration.ts";
export type { PostgresStoreOptions } from "./options.ts";
export { postgresStore } from "./postgres-store.ts";
