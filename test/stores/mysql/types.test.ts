/** What mysql2 makes fits without a cast. */
import type { MysqlClient } from "holdfast/mysql";
import type { Connection, Pool, PoolCluster, PoolConnection, PoolNamespace } from "mysql2/promise";
import { expectTypeOf, test } from "vitest";

test("mysql: pools and connections of mysql2/promise are clients", () => {
  expectTypeOf<Pool>().toExtend<MysqlClient>();
  expectTypeOf<PoolConnection>().toExtend<MysqlClient>();
  expectTypeOf<Connection>().toExtend<MysqlClient>();
  expectTypeOf<PoolNamespace>().toExtend<MysqlClient>();
  expectTypeOf<PoolCluster>().not.toEqualTypeOf<MysqlClient>();
});
