/**
 * A transactional outbox: orders are written together with a message about them, and a relay publishes the messages afterwards.
 * Several replicas run the relay, one of them at a time, and only the present one can mark a message as sent.
 *
 * The replicas are two loops in this process, with a client of the lock store each. The database is a file of SQLite.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLocks, HoldfastError, memoryStore } from "holdfast";
import { migrateSqliteFence } from "holdfast/fencing";
import sqlite from "node-sqlite3-wasm";
import { migrate, placeOrder, unsent } from "./orders.ts";
import { type Broker, relayOnce } from "./relay.ts";

const folder = mkdtempSync(join(tmpdir(), "holdfast-outbox-"));
const database = new sqlite.Database(join(folder, "orders.db"));
migrate(database);
migrateSqliteFence(database);

const store = memoryStore();
const one = createLocks(store, { closeStore: false, application: "relay-1", onWarning: () => {} });
const two = createLocks(store, { closeStore: false, application: "relay-2", onWarning: () => {} });
const lock = { key: "outbox-relay", ttlMs: 200 };

/** Who published what. A broker delivers at least once; whoever consumes tells repetitions apart by the number. */
const published: string[] = [];
const brokerOf = (replica: string): Broker => ({
  publish: async (id, body) => void published.push(`${replica} published ${id}: ${body}`),
});

for (const item of ["apples", "pears", "plums", "quinces"]) placeOrder(database, item);

// The first replica relays two messages.
const turn = one.mutex(lock.key, { ttlMs: lock.ttlMs, renew: false });
await turn.run((lease) => relayOnce(database, lease, brokerOf("relay-1"), 2));

// It takes the lock again, publishes one more, and is held up before it can mark it as sent: so long that its lease is over.
const slow = await turn.acquire();
const heldUp: Broker = {
  async publish(id, body) {
    await brokerOf("relay-1").publish(id, body);
    const next = await two.mutex(lock.key, { ttlMs: 10_000 }).acquire();
    // The second replica has taken over meanwhile, and relays all that is left, this message included.
    await relayOnce(database, next, brokerOf("relay-2"), 100);
    await next.release();
  },
};
// What a replica still believes that has not looked at its lease: the fence that it was granted.
const stale = { key: slow.key, fence: slow.fence };
const late = await relayOnce(database, stale, heldUp, 1).then(
  () => "relay-1 marked its message, too",
  (error) => `relay-1 is refused: ${HoldfastError.from(error).code}`,
);

for (const line of published) console.log(line);
console.log(late);
const marks = database.all("select id, sent_by as by from outbox order by id");
for (const { id, by } of marks) console.log(`message ${id} was marked by the holder of fence ${by}`);
console.log(`unsent: ${unsent(database, 100).length}`);

await Promise.all([one.close(), two.close()]);
await store.close();
database.close();
rmSync(folder, { recursive: true });
