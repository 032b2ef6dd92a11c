export type { MysqlClient, MysqlConnection, MysqlPool, MysqlPoolConnection, MysqlQuery } from "./client.ts";
export { type MysqlMigrationOptions, migrateMysql } from "./migration.ts";
export { type MysqlStoreOptions, mysqlStore } from "./mysql-store.ts";
