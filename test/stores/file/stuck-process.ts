/** A process that begins a transaction and never ends it, as one that is stopped at the wrong moment. */
import { livePath, withFile } from "./raw-files.ts";

const [folder = ""] = process.argv.slice(2);
await withFile(livePath(folder), (root) => {
  root.transactionSync(() => {
    process.send?.("stuck");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  });
});
