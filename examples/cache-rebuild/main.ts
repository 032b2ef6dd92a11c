/**
 * A cache that several processes read all the time, and that one of them rebuilds when its source has changed.
 *
 * This process keeps the locks, changes the source twice, and looks at every page that was served.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { memoryStore } from "holdfast";
import { startServer } from "holdfast/server";
import { pino } from "pino";
import { PageCache } from "./page-cache.ts";
import type { WebEvent } from "./web.ts";

const PROCESSES = 3;
const CHANGES = 2;
/** Pages that every process has served before the source changes again. */
const PAGES_BETWEEN = 20;

const folder = mkdtempSync(join(tmpdir(), "holdfast-cache-"));
const cache = new PageCache(folder);
const served = { pages: 0, torn: 0 };
const rebuilt: number[] = [];
const webs: ChildProcess[] = [];

process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => {
    for (const web of webs) web.kill("SIGKILL");
    process.exit(130);
  });
}

await cache.changeSource(1);
await cache.replace({ head: 1, body: 1 });
const server = await startServer({ store: memoryStore(), port: 0, logger: pino({ level: "warn" }) });
console.log(`${PROCESSES} processes serve pages from one cache. Its source changes ${CHANGES} times.`);

for (let number = 1; number <= PROCESSES; number++) webs.push(startWeb());
const ends = webs.map((web) => once(web, "exit"));
for (let change = 1; change <= CHANGES; change++) {
  const pages = served.pages + PAGES_BETWEEN * PROCESSES;
  while (served.pages < pages) await sleep(5);
  await cache.changeSource(change + 1);
  console.log(`The source changes to version ${change + 1}.`);
  while (rebuilt.length < change) await sleep(5);
}
await Promise.all(ends);
await server.stop({ graceMs: 0 });

console.log(`Rebuilt to version ${rebuilt.join(", then ")}: once for each change.`);
console.log(`${served.pages} pages were served, ${served.torn} of them torn.`);
process.exitCode = rebuilt.length === CHANGES && served.torn === 0 ? 0 : 1;

function startWeb(): ChildProcess {
  const program = fileURLToPath(new URL("./web.ts", import.meta.url));
  const args = [server.url, folder, `${CHANGES + 1}`];
  const web = fork(program, args);
  web.on("message", ({ served: page, rebuilt: version }: WebEvent) => {
    if (version !== undefined) rebuilt.push(version);
    if (page === undefined) return;
    served.pages++;
    if (page.head !== page.body) served.torn++;
  });
  return web;
}
