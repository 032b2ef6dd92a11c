/** A program with nothing to do but what its argument says. `process-lifetime.test.ts` looks at when it ends. */
import { createLocks, memoryStore, StoreUnavailableError } from "holdfast";

const store = memoryStore();
const locks = createLocks(store);

switch (process.argv[2]) {
  case "holds":
    await locks.mutex("k", { ttlMs: 60_000 }).acquire();
    console.log("holds");
    break;
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
