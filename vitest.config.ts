import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  resolve: {
    alias: [
      { find: /^holdfast$/, replacement: here("./src/index.ts") },
      { find: /^holdfast\/cas$/, replacement: here("./src/stores/cas/index.ts") },
      { find: /^holdfast\/mongodb$/, replacement: here("./src/stores/mongodb/index.ts") },
      { find: /^holdfast\/mysql$/, replacement: here("./src/stores/mysql/index.ts") },
      { find: /^holdfast\/open$/, replacement: here("./src/open/index.ts") },
      { find: /^holdfast\/postgres$/, replacement: here("./src/stores/postgres/index.ts") },
      { find: /^holdfast\/fencing$/, replacement: here("./src/fencing/index.ts") },
      { find: /^holdfast\/file$/, replacement: here("./src/stores/file/index.ts") },
      { find: /^holdfast\/etcd$/, replacement: here("./src/stores/etcd/index.ts") },
      { find: /^holdfast\/redis$/, replacement: here("./src/stores/redis/index.ts") },
      { find: /^holdfast\/redlock$/, replacement: here("./src/stores/redlock/index.ts") },
      { find: /^holdfast\/remote$/, replacement: here("./src/stores/remote/index.ts") },
      { find: /^holdfast\/server$/, replacement: here("./src/server/index.ts") },
      { find: /^holdfast\/thread$/, replacement: here("./src/thread/index.ts") },
      { find: /^holdfast\/testing$/, replacement: here("./src/testing/index.ts") },
      { find: /^holdfast\/fastify$/, replacement: here("./src/fastify/index.ts") },
      { find: /^holdfast\/nestjs$/, replacement: here("./src/nestjs/index.ts") },
      { find: /^holdfast\/otel$/, replacement: here("./src/otel/index.ts") },
      { find: /^holdfast\/prometheus$/, replacement: here("./src/prometheus/index.ts") },
    ],
  },
  test: {
    include: ["test/**/*.test.ts"],
    // Programs that tests start are compiled once, before any of them.
    globalSetup: "test/setup.ts",
    // A hung promise is a failure that names its test, not a run that never ends.
    testTimeout: 20_000,
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
