/** A lock server in a process of its own, over memory, which tells its parent how much memory it uses. */

import { pino } from "pino";
import { memoryStore } from "../../src/index.ts";
import { type ServerLimits, startServer } from "../../src/server/index.ts";

const limits = JSON.parse(process.argv[2] ?? "{}") as ServerLimits;
const server = await startServer({
  store: memoryStore(),
  port: 0,
  logger: pino({ level: "silent" }),
  limits,
});

process.on("message", (message: "memory" | "stop") => {
  if (message === "memory") {
    globalThis.gc?.();
    const { rss, heapUsed, external } = process.memoryUsage();
    process.send?.({ rss, heapUsed, external });
  } else void server.stop({ graceMs: 0 }).then(() => process.disconnect());
});
// Without its parent it is of no use.
process.on("disconnect", () => process.exit());
process.send?.({ url: server.url, port: server.port });
