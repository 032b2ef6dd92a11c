/** Lock servers for tests, on free ports. */
import { memoryStore, type Store } from "holdfast";
import { type LockServer, type ServerOptions, startServer } from "holdfast/server";
import { pino } from "pino";

/** A server that logs nothing, over memory unless there is another store. */
export function startLockServer(options: Partial<ServerOptions> = {}): Promise<LockServer> {
  const store: Store = options.store ?? memoryStore();
  return startServer({ port: 0, logger: pino({ level: "silent" }), ...options, store });
}

/** A store that does some things its own way, and everything else as another one does. */
export function storeOver(store: Store, changes: Partial<Store>): Store {
  return {
    name: store.name,
    durability: store.durability,
    counts: store.counts,
    acquire: (request) => store.acquire(request),
    renew: (refs) => store.renew(refs),
    release: (refs) => store.release(refs),
    look: (query) => store.look(query),
    onGrant: (owner, listener) => store.onGrant(owner, listener),
    close: () => store.close(),
    ...changes,
  };
}
