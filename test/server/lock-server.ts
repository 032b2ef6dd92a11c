/** Lock servers for tests, on free ports. */
import { memoryStore, type Store } from "holdfast";
import { type LockServer, type ServerOptions, startServer } from "holdfast/server";
import { pino } from "pino";

/** A server that logs nothing, over memory unless there is another store. */
export function startLockServer(options: Partial<ServerOptions> = {}): Promise<LockServer> {
  const store: Store = options.store ?? memoryStore();
  return startServer({ port: 0, logger: pino({ level: "silent" }), ...options, store });
}
