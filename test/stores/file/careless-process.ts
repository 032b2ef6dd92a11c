/** A program that takes a lock, and ends without having given it back or closed anything. */
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";

const [folder = ""] = process.argv.slice(2);
const locks = createLocks(fileStore(folder));
const lease = await locks.mutex("key", { renew: false }).acquire();
console.log(lease.held ? "held" : "not held");
