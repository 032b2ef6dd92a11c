/** A process that takes a lock, says by which number it goes, and holds it until its input ends. */
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";

const [folder = "", key = ""] = process.argv.slice(2);
const locks = createLocks(fileStore(folder));
const lease = await locks.mutex(key).acquire();
console.log(`${process.pid} ${lease.held}`);
process.stdin.resume();
process.stdin.once("end", () => void locks.close());
