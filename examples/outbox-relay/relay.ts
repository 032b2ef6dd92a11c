/** What the relay does with a lease: publish what is unsent, in order, and mark it as sent. */
import { type Fenced, fenceSqlite } from "holdfast/fencing";
import type { Database } from "node-sqlite3-wasm";
import { inTransaction, markSent, unsent } from "./orders.ts";

export interface Broker {
  publish(id: number, body: string): Promise<void>;
}

/**
 * A message may be published twice, where a relay is held up or dies in between: that is what "at least once" means. What may not
 * happen is that a relay that has lost its lock changes the outbox under the one that holds it.
 */
export async function relayOnce(
  database: Database,
  lease: Fenced,
  broker: Broker,
  limit: number,
): Promise<void> {
  // First of all the mark is raised, so that nobody older changes what is about to be read.
  inTransaction(database, () => fenceSqlite(database, lease));
  for (const { id, body } of unsent(database, limit)) {
    await broker.publish(id, body);
    inTransaction(database, () => {
      fenceSqlite(database, lease);
      markSent(database, id, lease.fence);
    });
  }
}
