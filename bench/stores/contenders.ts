/** All stores, in the order of the report. */
import type { StoreContender } from "./contender.ts";
import { etcd } from "./etcd.ts";
import { file, fileInMemory } from "./file.ts";
import { mongodb } from "./mongodb.ts";
import { mysql } from "./mysql.ts";
import { postgres } from "./postgres.ts";

export const contenders: readonly StoreContender[] = [
  file,
  ...(fileInMemory === undefined ? [] : [fileInMemory]),
  postgres,
  mysql,
  mongodb,
  etcd,
];
