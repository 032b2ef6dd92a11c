/** A process that holds a lock and writes as long as it holds it. `faults.test.ts` stops it for longer than the ttl. */
import { fileStore } from "holdfast/file";
import { writeWhileHeld } from "../writing-holder.ts";

const [folder = "", ttlMs] = process.argv.slice(2);
await writeWhileHeld(fileStore(folder), Number(ttlMs));
process.disconnect?.();
