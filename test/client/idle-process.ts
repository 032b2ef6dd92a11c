/** A program with nothing to do but what its argument says. `process-lifetime.test.ts` looks at when it ends. */
import { createLocks, memoryStore, StoreUnavailableError } from "holdfast";

const store = memoryStore();
const locks = createLocks(store);

switch (process.argv[2]) {
  case "holds":
    await locks.mutex("k", { ttlMs: 60_000 }).acquire();
    console.log("holds");
    break;
  case "keeps a lease": {
    const lease = await locks.mutex("k", { maxHoldMs: 300, keepProcessAlive: true }).acquire();
    await new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
    console.log(lease.lost);
    break;
  }
  case "keeps a lease being won again": {
    const options = { ttlMs: 60, maxHoldMs: 900, reacquire: true, keepProcessAlive: true };
    const lease = await locks.mutex("k", options).acquire();
    const { id } = lease;
    await locks.forceRelease("k", id);
    await createLocks(store).mutex("k", { renew: false, ttlMs: 600 }).acquire();
    await new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
    console.log(lease.id === id ? "not won again" : lease.lost);
    break;
  }
  case "watches a lease": {
    const lease = await locks.mutex("k", { maxHoldMs: 300, keepProcessAlive: true }).acquire();
    for await (const { lost } of lease.watch()) if (lost !== undefined) console.log(lost);
    break;
  }
  case "runs":
    await locks.mutex("k", { maxHoldMs: 300 }).run(
      ({ signal }) =>
        new Promise<void>((resolve) => {
          signal.addEventListener("abort", () => resolve());
        }),
    );
    console.log("aborted");
    break;
  case "leads": {
    const election = locks.election("office", { ttlMs: 300 });
    await election.lead(async ({ signal }) => {
      const [leader] = (await locks.inspect("office")).held;
      setTimeout(() => void locks.forceRelease("office", leader?.id ?? ""), 100).unref();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      void election.resign();
    });
    console.log("aborted");
    break;
  }
  case "waits":
    await locks.mutex("k", { ttlMs: 300, renew: false }).acquire();
    await locks.mutex("k").acquire();
    console.log("served");
    break;
  case "asks": {
    const acquire = store.acquire.bind(store);
    store.acquire = async () => {
      store.acquire = acquire;
      throw new StoreUnavailableError("Connection refused.");
    };
    await locks.mutex("k").acquire();
    console.log("served");
    break;
  }
  case "releases": {
    const lease = await locks.mutex("k").acquire();
    const release = store.release.bind(store);
    store.release = async () => {
      store.release = release;
      throw new StoreUnavailableError("Connection refused.");
    };
    console.log(await lease.release());
    break;
  }
  case "closes":
    await locks.mutex("k", { ttlMs: 300, renew: false }).acquire();
    await locks.close({ graceMs: 60_000 });
    console.log("closed");
    break;
  case "schedules":
    locks.schedule("daily", "0 3 * * *", () => {});
    console.log("schedules");
    break;
  case "keeps a schedule": {
    const schedule = locks.schedule(
      "often",
      "* * * * * *",
      () => {
        console.log("ran");
        void schedule.stop();
      },
      { keepAlive: true },
    );
    break;
  }
  case "campaigns": {
    const election = locks.election("office", { ttlMs: 300 });
    await locks.mutex("office", { ttlMs: 300, renew: false }).acquire();
    await election.lead(() => {
      console.log("led");
      void election.resign();
    });
    break;
  }
}
