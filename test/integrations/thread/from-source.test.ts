/** The thread from its sources, in the process of the tests: with a loader, and with a module in TypeScript. */
import { createLocks } from "holdfast";
import { openStore } from "holdfast/open";
import { heartbeatThread } from "holdfast/thread";
import { expect, onTestFinished, test } from "vitest";
import { canRunRedis, startRedis, until } from "../../engines/redis.ts";

const TTL_MS = 2_000;

test.skipIf(!canRunRedis())(
  "a module in TypeScript keeps leases, with a loader for it",
  async () => {
    const redis = await startRedis();
    onTestFinished(() => redis.stop());
    const url = `redis://127.0.0.1:${redis.port}`;
    const mark = new SharedArrayBuffer(4);
    const thread = heartbeatThread({
      module: new URL("./marking-source.ts", import.meta.url),
      data: { url, mark },
      execArgv: ["--import", new URL("./typescript-loader.js", import.meta.url).href],
    });
    const warnings: unknown[] = [];
    const locks = createLocks(await openStore(url), {
      thread,
      onWarning: (warning) => warnings.push(warning),
    });
    onTestFinished(() => locks.close());
    const lease = await locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await until("the thread has renewed the lease", async () => Atomics.load(new Int32Array(mark), 0) === 1);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1.5 * TTL_MS);
    expect(lease.held).toBe(true);
    expect(await lease.release()).toBe(true);
    expect(warnings).toEqual([]);
  },
  60_000,
);
