/** Loaded into a thread before its own code: counts how often it flushes a file. */
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { workerData } from "node:worker_threads";

const { fdatasyncSync } = fs;
const flushes = new Int32Array(workerData.flushes);
fs.fdatasyncSync = (descriptor) => {
  fdatasyncSync(descriptor);
  Atomics.add(flushes, 0, 1);
};
syncBuiltinESMExports();
