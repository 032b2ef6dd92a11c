/** A process for one store and its peers: the code that all stores share is compiled for this one alone, as in an application. */
import { offer } from "../child.ts";
import type { Row } from "../report.ts";
import { contenders } from "./contenders.ts";
import { measureStore, type Sizes } from "./measure.ts";

const storeProcess = {
  async measure({ name, sizes }: { readonly name: string; readonly sizes: Sizes }): Promise<Row[]> {
    const contender = contenders.find((each) => each.name === name);
    if (contender === undefined) throw new Error(`No store is called ${name}.`);
    return measureStore(contender, sizes);
  },
};

export type StoreProcess = typeof storeProcess;

offer(storeProcess);
