/** Loaded into a thread before its own code: the first two flushes of one folder fail. */
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { workerData } from "node:worker_threads";

const { fsyncSync } = fs;
let failures = 0;
fs.fsyncSync = (descriptor) => {
  const { ino } = fs.fstatSync(descriptor);
  if (failures < 2 && ino === fs.statSync(workerData.failing).ino) {
    failures++;
    throw Object.assign(new Error("EIO: i/o error, fsync"), { code: "EIO" });
  }
  fsyncSync(descriptor);
};
syncBuiltinESMExports();
