export type { MysqlClient, MysqlConnection, MysqlPool, MysqlPoolConnection, MysqlQuery } from "./client.ts";
export { type MysqlMigrationOptions, migrateMysql } from "./migration.ts";
export { mysqlStore } from "./mysql-store.ts";
export type { MysqlStoreOptions } from "./options.ts";
