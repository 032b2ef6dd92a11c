/** A process that holds a lock and writes as long as it holds it. Tests stop it for longer than the ttl, and kill it. */
import { Etcd3 } from "etcd3";
import { etcdStore } from "holdfast/etcd";
import { playPart } from "../parts.ts";

const [hosts = "", ttlMs, part] = process.argv.slice(2);
const client = new Etcd3({ hosts });
await playPart(part, etcdStore(client), Number(ttlMs));
client.close();
process.disconnect?.();
