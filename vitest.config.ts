import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { compiledSources, replacingTests } from "./test/compiled-sources.ts";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The entry points of package.json, and the source behind each. */
const { exports } = JSON.parse(readFileSync(here("./package.json"), "utf8")) as {
  exports: Readonly<Record<string, string | { readonly default: string }>>;
};
const alias = Object.entries(exports).flatMap(([name, target]) => {
  if (typeof target === "string") return [];
  const source = target.default.replace("./dist/", "./src/").replace(/\.js$/, ".ts");
  return [{ find: new RegExp(`^holdfast${name.slice(1)}$`), replacement: here(source) }];
});

/** Tests that replace a module take the sources themselves. */
const replacing = replacingTests();

/**
 * Long faults and topologies, for `npm run faults`: clusters, failovers, standbys, silent networks, full disks.
 * The files `faults` and `drops` of the stores run in both projects; `FAULTS` adds their long tests.
 */
const longStoreTests = [
  "binary-log,cluster,cluster-messages,clusters,compacted-watch,crashes,full-disk,learner,lost-count,moving-slot",
  "refused-watch,replica-set,restored,servers,silence,silent-server,standby,wrong-clocks",
];
const faults = ["test/**/*.faults.test.ts", `test/stores/*/{${longStoreTests.join(",")}}.test.ts`];

/**
 * These files leave nothing behind in their process, so they share processes and load modules once.
 * What they import must have no hooks beside its functions: hooks would run for the first file alone.
 */
const sharingServers = [
  "contract",
  "fencing",
  "server",
  "stores/{etcd,mongodb,mysql,postgres,redis,redlock,remote}",
];
const sharingNoServers = [
  "client",
  "coordination",
  "integrations/{otel,prometheus}",
  "protocol",
  "record",
  "store",
  "stores/{cas,memory}",
  "testing",
];
const testsIn = (folders: readonly string[]) => folders.map((folder) => `test/${folder}/**/*.test.ts`);

const external = [/\/\.tests\//];

interface Scope {
  readonly exclude?: string[];
  readonly isolate?: boolean;
  readonly env?: Record<string, string>;
}

/** Tests over sources that were compiled once. */
function compiled(name: string, include: string[], { exclude = faults, isolate = true, env = {} }: Scope) {
  const test = {
    name,
    include,
    exclude: [...replacing, ...exclude],
    isolate,
    env,
    server: { deps: { external } },
  };
  return { extends: true as const, plugins: [compiledSources()], test };
}

export default defineConfig({
  resolve: { alias },
  test: {
    // Projects begin in the order of their names. The short tests come last, so that the end waits for no single file.
    projects: [
      { extends: true, test: { name: "as written", include: replacing } },
      compiled("servers shared", testsIn(sharingServers), { isolate: false }),
      compiled("compiled", ["test/**/*.test.ts"], {
        exclude: [...faults, ...testsIn([...sharingServers, ...sharingNoServers])],
      }),
      compiled("shared", testsIn(sharingNoServers), { isolate: false }),
      compiled("faults", [...faults, "test/stores/*/{faults,drops}.test.ts"], {
        exclude: [],
        env: { FAULTS: "all" },
      }),
    ],
    // Compiles the sources and the programs of tests, and builds the package, before the tests.
    globalSetup: "test/setup.ts",
    // A hung promise is a failure that names its test, not a run that never ends.
    testTimeout: 45_000,
    // Hooks start and stop servers.
    hookTimeout: 60_000,
    // The default of one second is short for a busy machine.
    expect: { poll: { timeout: 10_000 } },
    // The tests of a contract suite sleep most of the time; five at a time would take twice as long.
    maxConcurrency: 12,
    // Most files wait for servers and timers, so three at a time suit two cores.
    maxWorkers: Math.max(3, availableParallelism() - 1),
  },
});
