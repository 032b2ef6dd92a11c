import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { compiledSources, replacingTests } from "./test/compiled-sources.ts";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** What package.json exports, as names that are imported and the sources behind them. */
const { exports } = JSON.parse(readFileSync(here("./package.json"), "utf8")) as {
  exports: Readonly<Record<string, string | { readonly default: string }>>;
};
const alias = Object.entries(exports).flatMap(([name, target]) => {
  if (typeof target === "string") return [];
  const source = target.default.replace("./dist/", "./src/").replace(/\.js$/, ".ts");
  return [{ find: new RegExp(`^holdfast${name.slice(1)}$`), replacement: here(source) }];
});

/** These take the sources themselves. */
const replacing = replacingTests();

/**
 * These leave nothing behind in their process. So they share processes, which spares most of what each file would load and compile
 * anew: docs/decisions/0003-test-runner-and-tools.md. What they import must have no hooks beside its functions, which would be
 * called for the first of them alone.
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

/** Tests over sources that were compiled once. */
function compiled(
  name: string,
  include: string[],
  { exclude = [], isolate = true }: { exclude?: string[]; isolate?: boolean },
) {
  const test = {
    name,
    include,
    exclude: [...replacing, ...exclude],
    isolate,
    server: { deps: { external } },
  };
  return { extends: true as const, plugins: [compiledSources()], test };
}

export default defineConfig({
  resolve: { alias },
  test: {
    // They begin in the order of their names. The short ones come last, so that the end does not wait for a single file.
    projects: [
      { extends: true, test: { name: "as written", include: replacing } },
      compiled("servers shared", testsIn(sharingServers), { isolate: false }),
      compiled("compiled", ["test/**/*.test.ts"], {
        exclude: testsIn([...sharingServers, ...sharingNoServers]),
      }),
      compiled("shared", testsIn(sharingNoServers), { isolate: false }),
    ],
    // Sources, and programs that tests start, are compiled once, before any of them.
    globalSetup: "test/setup.ts",
    // A hung promise is a failure that names its test, not a run that never ends.
    testTimeout: 45_000,
    // They start and stop servers.
    hookTimeout: 60_000,
    // What is looked for again and again is found at once on most machines; a second, which is the default, is little on a busy one.
    expect: { poll: { timeout: 10_000 } },
    // The tests of a contract suite sleep most of the time; on five at a time the suites of all Redis clients take twice as long.
    maxConcurrency: 12,
    // Most files wait for servers and for time to pass, so three at a time are well used even on two cores.
    maxWorkers: Math.max(3, availableParallelism() - 1),
  },
});
