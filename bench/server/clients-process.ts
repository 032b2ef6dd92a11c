/** A process with many clients of a lock server, each with a connection of its own and one lease. */
import { createLocks, type Lease, type Locks } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { offer } from "../child.ts";

interface Client {
  readonly locks: Locks;
  readonly lease: Lease;
}

interface Hold {
  readonly url: string;
  /** What the keys of this process begin with. */
  readonly name: string;
  readonly count: number;
  readonly ttlMs: number;
  readonly spreadMs: number;
}

/** How many connect at a time. */
const AT_ONCE = 20;

const clients: Client[] = [];

async function connect(url: string, key: string, ttlMs: number): Promise<Client> {
  const locks = createLocks(remoteStore(url, { connectTimeoutMs: 30_000 }), { requestTimeoutMs: 60_000 });
  return { locks, lease: await locks.mutex(key, { ttlMs }).acquire() };
}

const functions = {
  /** Connects that many, evenly over some time, so that their heartbeats are spread as those of a fleet are. */
  async hold({ url, name, count, ttlMs, spreadMs }: Hold): Promise<void> {
    const startMs = performance.now();
    while (clients.length < count) {
      const wanted = Math.min(AT_ONCE, count - clients.length);
      const keys = Array.from({ length: wanted }, (_, each) => `${name}:${clients.length + each}`);
      clients.push(...(await Promise.all(keys.map((key) => connect(url, key, ttlMs)))));
      const dueMs = (clients.length / count) * spreadMs;
      const aheadMs = dueMs - (performance.now() - startMs);
      if (aheadMs > 1) await new Promise((resolve) => setTimeout(resolve, aheadMs));
    }
  },
  /** How many of the leases are held. */
  async held(): Promise<number> {
    return clients.filter(({ lease, locks }) => lease.held && locks.stats().lost === 0).length;
  },
};

export type ClientsProcess = typeof functions;

offer(functions);
