/** The driver in SQL that the docs have, over files of SQLite: both suites, one of them on an owned clock. */
import { join } from "node:path";
import { createLocks, type Store } from "holdfast";
import { casStore } from "holdfast/cas";
import { driverContract, ManualClock, storeContract } from "holdfast/testing";
import wasm from "node-sqlite3-wasm";
import * as vitest from "vitest";
import { sqliteDriver } from "../../examples/driver/sqlite-driver.ts";
import { newFolder } from "../stores/file/folders.ts";

const DAY_MS = 86_400_000;
/** The day from which computers count, as SQLite counts days. */
const EPOCH_DAY = 2_440_587.5;

/** Drivers over one file with a connection each, as several processes have them. */
class Connections {
  readonly #path = join(newFolder(), "locks.db");
  readonly #open: wasm.Database[] = [];

  /** Without a clock, it is that of the machine. */
  driver(clock?: ManualClock) {
    const database = new wasm.Database(this.#path);
    this.#open.push(database);
    // Nobody loses power here.
    database.exec("pragma journal_mode = memory; pragma synchronous = off");
    // With as many parameters as it is called with, it takes the place of SQLite's own.
    if (clock !== undefined) database.function("julianday", (_when) => EPOCH_DAY + clock.wallMs() / DAY_MS);
    return sqliteDriver(database);
  }

  close(): void {
    for (const database of this.#open) database.close();
  }
}

driverContract(
  {
    name: "the SQLite driver",
    pushes: false,
    async open() {
      const connections = new Connections();
      return {
        async driver() {
          const driver = connections.driver();
          await driver.prepare?.();
          return driver;
        },
        close: async () => connections.close(),
      };
    },
  },
  vitest,
);

vitest.describe("the SQLite driver", () => {
  vitest.test("waits at its first use for whoever has the file locked", async () => {
    const path = join(newFolder(), "locks.db");
    const [other, own] = [new wasm.Database(path), new wasm.Database(path)];
    vitest.onTestFinished(() => [other, own].forEach((database) => void database.close()));
    other.exec("begin immediate");
    other.exec("create table orders (number integer)");
    const locks = createLocks(casStore(sqliteDriver(own)));
    const trying = locks.mutex("key").tryAcquire();
    await vitest.expect.poll(() => locks.stats().failures).toBeGreaterThan(0);
    other.exec("commit");
    vitest.expect(await trying).not.toBeNull();
    await locks.close();
  });
});

storeContract(
  {
    name: "sqlite",
    async open(options) {
      const clock = new ManualClock();
      const connections = new Connections();
      const stores: Store[] = [];
      return {
        clock,
        async store() {
          const store = casStore(connections.driver(clock), { ...options, clock, maxPollMs: 50 });
          stores.push(store);
          return store;
        },
        sleep: (ms) => clock.advance(ms),
        async close() {
          await Promise.all(stores.map((store) => store.close()));
          connections.close();
        },
      };
    },
  },
  vitest,
);
