/** Whether an operation costs more while very many leases are held, and what holding one takes. */
import { Child } from "../child.ts";
import { alternate, type Pair } from "../rounds.ts";
import type { HeldKeys } from "./held-keys-process.ts";
import type { HeldRecords } from "./held-records-process.ts";

export interface HeldKeysResult {
  /** `ours` with many leases held, `theirs` with few. */
  readonly fixed: Pair;
  readonly fresh: Pair;
  readonly bytesAtMany: number;
  readonly bytesAtSome: number;
}

export interface HeldKeysSizes {
  readonly few: number;
  readonly some: number;
  readonly many: number;
  readonly cycles: number;
  readonly rounds: number;
}

/** Leases of a client, with all that keeps them alive. */
export function measureHeldKeys(
  sizes: HeldKeysSizes,
  nodeOptions: readonly string[] = [],
): Promise<HeldKeysResult> {
  return measure<HeldKeys>("held-keys-process.js", sizes, nodeOptions);
}

/** Keys of a store alone, whose clients are elsewhere. */
export function measureHeldRecords(sizes: HeldKeysSizes): Promise<HeldKeysResult> {
  return measure<HeldRecords>("held-records-process.js", sizes, []);
}

async function measure<P extends HeldKeys | HeldRecords>(
  name: string,
  sizes: HeldKeysSizes,
  nodeOptions: readonly string[],
): Promise<HeldKeysResult> {
  const file = new URL(name, import.meta.url);
  const few = new Child<P>(file, nodeOptions);
  const some = new Child<P>(file, nodeOptions);
  const many = new Child<P>(file, nodeOptions);
  try {
    const bytesAtSome = await some.call("hold", sizes.some);
    some.stop();
    await few.call("hold", sizes.few);
    const bytesAtMany = await many.call("hold", sizes.many);
    const compare = (name: "cycleFixed" | "cycleFresh") =>
      alternate(
        () => many.call(name, sizes.cycles),
        () => few.call(name, sizes.cycles),
        sizes.rounds,
      );
    return {
      fixed: await compare("cycleFixed"),
      fresh: await compare("cycleFresh"),
      bytesAtMany,
      bytesAtSome,
    };
  } finally {
    for (const child of [few, some, many]) child.stop();
  }
}
