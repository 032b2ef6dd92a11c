import type { Store } from "holdfast";

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
