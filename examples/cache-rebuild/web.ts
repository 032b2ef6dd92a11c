/** One of several web processes that serve pages from the same cache. Whoever finds it out of date rebuilds it. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { type Page, PageCache } from "./page-cache.ts";

/** What a web process tells the demo. */
export interface WebEvent {
  readonly served?: Page;
  readonly rebuilt?: number;
}

// A process of this demo has no business without it: also when the demo itself was killed.
process.once("disconnect", () => process.exit(0));

const [locksUrl = "", folder = "", lastVersion = "0"] = process.argv.slice(2);
const cache = new PageCache(folder);
const locks = createLocks(remoteStore(locksUrl), { application: "cache-rebuild-example" });
const files = locks.rwLock("page-cache", { ttlMs: 2_000 });
const rebuild = locks.mutex("page-cache:rebuild", { ttlMs: 2_000 });

for (;;) {
  const page = await files.read.run(() => cache.page());
  tell({ served: page });
  if (page.head === Number(lastVersion) && page.body === Number(lastVersion)) break;
  if (page.body < (await cache.sourceVersion())) await rebuildUnlessSomebodyDoes();
  await sleep(2);
}
await locks.close();
process.disconnect?.();

/** Nobody waits for it: while one rebuilds, the others serve what there is. */
async function rebuildUnlessSomebodyDoes(): Promise<void> {
  await rebuild.tryRun(async (lease) => {
    // Somebody may have been done with it just before.
    const { body } = await files.read.run(() => cache.page());
    if (body >= (await cache.sourceVersion())) return;
    const page = await cache.build();
    // The writer waits for those who read now, and those who come later wait for the writer, so it does get its turn.
    await files.write.run(async () => {
      lease.assertHeld();
      await cache.replace(page);
    });
    tell({ rebuilt: page.body });
  });
}

function tell(event: WebEvent): void {
  process.send?.(event);
}
