/** A process that ends while its thread waits for the file: by process.exit(), or by an uncaught error. */
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";

const [folder = "", how = ""] = process.argv.slice(2);
const locks = createLocks(fileStore(folder), { onWarning: () => {} });
// It may be granted while the process ends, and then its ttl ends it.
const mutex = locks.mutex("ending", { ttlMs: 1_000 });
await mutex.run(() => {});
process.once("message", () => {
  mutex.tryAcquire().catch(() => {});
  // Until then the request is with the thread.
  setTimeout(() => {
    process.send?.("ends");
    if (how === "throw") throw new Error("uncaught");
    process.exit(0);
  }, 300);
});
process.send?.("ready");
