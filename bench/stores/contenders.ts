/** All stores, in the order of the report. Each is loaded when it is opened, so that a process has no other driver in it, and starts soon. */
import { statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import type { StoreContender } from "./contender.ts";

/** What the kernel calls a file system in memory. */
const TMPFS = 0x01021994;

/** In memory, which shows what is left when the disk costs nothing. Only where there is such a file system. */
const inMemory: readonly StoreContender[] = isInMemory("/dev/shm")
  ? [{ name: "file, in memory", open: async () => (await import("./file.ts")).openFile("/dev/shm") }]
  : [];

export const contenders: readonly StoreContender[] = [
  // On the disk of the folder for temporary files.
  { name: "file", open: async () => (await import("./file.ts")).openFile(tmpdir()) },
  ...inMemory,
  { name: "PostgreSQL", open: async () => (await import("./postgres.ts")).openPostgres() },
  { name: "MariaDB", open: async () => (await import("./mysql.ts")).openMysql() },
  { name: "MongoDB", open: async () => (await import("./mongodb.ts")).openMongodb() },
  { name: "etcd", open: async () => (await import("./etcd.ts")).openEtcd() },
];

function isInMemory(folder: string): boolean {
  try {
    return statfsSync(folder).type === TMPFS;
  } catch {
    return false;
  }
}
