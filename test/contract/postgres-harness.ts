import type { Store } from "holdfast";
import { type PostgresStoreOptions, postgresStore } from "holdfast/postgres";
import type { StoreHarness } from "holdfast/testing";
import { Pool } from "pg";

interface PostgresUnderTest {
  readonly name: string;
  url(): string;
  readonly settings: PostgresStoreOptions;
}

/** The instances of one test stand for processes, so each has a pool of its own; all tests share these pools. */
export function postgresHarness({ name, url, settings }: PostgresUnderTest) {
  const pools: Pool[] = [];
  const harness: StoreHarness = {
    name,
    tickMs: 40,
    async open(options) {
      const stores: Store[] = [];
      return {
        async store() {
          const place = stores.length;
          pools[place] ??= new Pool({ connectionString: url(), max: 20 });
          const store = postgresStore(pools[place], { ...settings, ...options });
          stores[place] = store;
          return store;
        },
        async close() {
          await Promise.all(stores.map((store) => store.close()));
        },
      };
    },
  };
  const end = async () => {
    await Promise.all(pools.map((pool) => pool.end()));
  };
  return { harness, end };
}
