/** A process that takes turns at a lock of a lock server, whose address it is told. */
import { remoteStore } from "holdfast/remote";
import { playPart } from "../parts.ts";

const [url = "", ttlMs, part] = process.argv.slice(2);
await playPart(part, remoteStore(url), Number(ttlMs));
process.disconnect?.();
