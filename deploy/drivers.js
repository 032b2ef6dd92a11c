/** Prints the drivers of all stores as npm takes them, in the versions of the lockfile: `ioredis@5.11.1 pg@8.23.1 …`. */
import { readFileSync } from "node:fs";

const drivers = ["ioredis", "pg", "mysql2", "mongodb", "etcd3"];

const { packages } = JSON.parse(readFileSync(new URL("../package-lock.json", import.meta.url), "utf8"));
const named = drivers.map((name) => `${name}@${packages[`node_modules/${name}`].version}`);
console.log(named.join(" "));
