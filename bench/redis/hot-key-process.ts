/** A process with some workers that all want one key. */
import { offer } from "../child.ts";
import { type Share, type Stint, workOnHotKey } from "../hot-key-workers.ts";
import { type Contender, type ContenderName, contenders } from "./contenders.ts";

let contender: Contender;

const hotKey = {
  async open({ port, name }: { readonly port: number; readonly name: ContenderName }): Promise<void> {
    contender = await contenders[name](port);
    // The first cycle connects and loads scripts.
    const release = await contender.acquire(`bench:warm-up:${process.pid}`);
    await release();
  },
  work: (stint: Stint): Promise<Share> => workOnHotKey((key) => contender.acquire(key), stint),
};

export type HotKey = typeof hotKey;

offer(hotKey);
