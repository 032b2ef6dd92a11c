export { type FenceHttpOptions, fencePassOf } from "./admission.ts";
export {
  expectFenced,
  type Fenced,
  type FenceTarget,
  fenceOf,
  MAX_FENCE,
  parseFence,
  StaleFenceError,
} from "./fence.ts";
export { fencedFetch } from "./fenced-fetch.ts";
export {
  createFenceGate,
  type EnterOptions,
  type FenceGate,
  type FenceGateOptions,
  type FenceMarks,
  type FencePass,
} from "./gate.ts";
export { FENCE_HEADER, type FenceHeader, fenceHeader, parseFenceHeader } from "./header.ts";
export {
  type ExpressFence,
  expressFence,
  type FastifyFenceReply,
  type FastifyFenceRequest,
  fastifyFence,
  type HonoFenceContext,
  honoFence,
  type NodeFenceOptions,
} from "./http.ts";
export {
  type FencedUpdateOptions,
  fencedFilter,
  fencedUpdate,
  fencedUpdateOne,
  type MongodbDocument,
  type MongodbFencedCollection,
  type MongodbFenceOptions,
  type MongodbUpdateResult,
} from "./mongodb.ts";
export { fenceMysql, type MysqlTransaction, migrateMysqlFence, mysqlFenceMigration } from "./mysql.ts";
export type { NodeFenceRequest, NodeFenceResponse, NodeFenceSocket } from "./node-exchange.ts";
export {
  fencePostgres,
  migratePostgresFence,
  type PostgresTransaction,
  postgresFenceMigration,
} from "./postgres.ts";
export {
  type FencedScript,
  type FencedScriptCall,
  type FencedSetOptions,
  fencedScript,
  fencedSet,
  fenceMarkKey,
  type RedisFenceOptions,
} from "./redis.ts";
export type { FenceTable, SqlFenceOptions } from "./sql-table.ts";
export {
  fenceSqlite,
  migrateSqliteFence,
  type PreparingDatabase,
  type RunningDatabase,
  type SqliteDatabase,
  sqliteFenceMigration,
} from "./sqlite.ts";
