/** A process with some workers that all want one key of a store. */
import { createLocks, type Locks } from "holdfast";
import { offer } from "../child.ts";
import { type Share, type Stint, workOnHotKey } from "../hot-key-workers.ts";
import { openContender } from "./open-contender.ts";

let locks: Locks;

const hotKey = {
  async open({ url }: { readonly url: string }): Promise<void> {
    locks = createLocks(await openContender(url), { onWarning: () => {} });
    // The first cycle connects, and learns the time.
    await (await locks.mutex(`bench:warm-up:${process.pid}`).acquire()).release();
  },
  work: (stint: Stint): Promise<Share> =>
    workOnHotKey(async (key) => {
      const lease = await locks.mutex(key).acquire();
      return () => lease.release();
    }, stint),
};

export type HotKey = typeof hotKey;

offer(hotKey);
