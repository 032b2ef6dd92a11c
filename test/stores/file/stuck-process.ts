/** A process that begins a transaction and never ends it, like one that is stopped at that moment. */
import { withFile } from "./raw-files.ts";

const [folder = ""] = process.argv.slice(2);
await withFile(folder, (root) => {
  root.transactionSync(() => {
    process.send?.("stuck");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  });
});
