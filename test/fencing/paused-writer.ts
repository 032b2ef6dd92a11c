/**
 * A process that acquires a lock, is stopped for longer than its ttl, and writes when it wakes up: once without a guard and once
 * with one. What it was about to write it had made up its mind about before, so it does not ask whether it still holds the lock.
 */
import { createLocks, type HoldfastError } from "holdfast";
import { storages, type Target } from "./storages.ts";

const [name = "", url = "", ttlMs = ""] = process.argv.slice(2);
const storage = await storages[name]!.open(url);
const locks = createLocks(storage.store, { onWarning: () => {} });
const { fence } = await locks.mutex("paused", { ttlMs: Number(ttlMs) }).acquire();

process.once("message", () => void write());
process.send?.({ fence: String(fence) });

async function write(): Promise<void> {
  const outcomes: Record<string, string> = {};
  for (const target of ["plain", "fenced"] as const) outcomes[target] = await attempt(target);
  process.send?.({ outcomes });
  await locks.close();
  await storage.end();
  process.disconnect?.();
}

async function attempt(target: Target): Promise<string> {
  try {
    await storage.write(target, "stale", fence);
    return "written";
  } catch (error) {
    return (error as HoldfastError).code;
  }
}
