/** A process with one contender in it, as in an application: no other library shares its heap or its compiled code. */
import { offer } from "../child.ts";
import { type CycleSizes, cycleFor, type Speed } from "../cycles.ts";
import { type Share, type Stint, workOnHotKey } from "../hot-key-workers.ts";
import { type Contender, type ContenderName, contenders } from "./contenders.ts";

let contender: Contender;

const contenderProcess = {
  async open({ port, name }: { readonly port: number; readonly name: ContenderName }): Promise<void> {
    contender = await contenders[name](port);
    // The first cycle connects and loads scripts.
    const release = await contender.acquire(`bench:warm-up:${process.pid}`);
    await release();
  },
  /** One round of cycles on keys that nobody else wants. */
  cycle: (sizes: CycleSizes): Promise<Speed> => cycleFor(sizes, (key) => contender.acquire(key)),
  /** Workers that all want one key, which other processes want as well. */
  work: (stint: Stint): Promise<Share> => workOnHotKey((key) => contender.acquire(key), stint),
};

export type ContenderProcess = typeof contenderProcess;

offer(contenderProcess);
