/** What it costs that somebody listens to the events of a client, and that nobody does. */
import { existsSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { createLocks, type Lock } from "holdfast";
import { cycleLeases } from "../memory/contenders.ts";
import { type Row, whole } from "../report.ts";
import { alternate, type Pair, timed } from "../rounds.ts";
import { ratioOf, spreadOf } from "../statistics.ts";
import type { Suite } from "../suite.ts";
import { listeners } from "./listeners.ts";

const full = { cycles: 50_000, rounds: 21 };
const small = { cycles: 200, rounds: 3 };

/** Names the built package of another version, to compare with: the folder that has its `dist`. */
const BASELINE = "HOLDFAST_BASELINE";

export const instrumentationSuite: Suite = {
  name: "instrumentation",
  async run({ quick, progress }) {
    const { cycles, rounds } = quick ? small : full;
    const locks = createLocks();
    const mutex = locks.mutex("bench");
    const silent = () => timed(cycles, () => cycleLeases(mutex, cycles));
    const rows: Row[] = [];
    const baseline = process.env[BASELINE];
    if (baseline !== undefined) {
      progress("Another version …");
      const theirs = await lockOf(baseline);
      const pair = await alternate(silent, () => timed(cycles, () => cycleLeases(theirs, cycles)), rounds);
      rows.push(rowOf("nobody listens, by another version", pair, "the other version", 1.05));
    }
    for (const { name, listen, atMost } of listeners) {
      progress(`${name} …`);
      const heard = async () => {
        const stop = listen();
        try {
          return await silent();
        } finally {
          stop();
        }
      };
      rows.push(rowOf(`${name} listens`, await alternate(heard, silent, rounds), "nobody listens", atMost));
    }
    await locks.close();
    return { title: "Instrumentation", method: methodOf(cycles, rounds), rows };
  },
};

/** The same lock of another version of the package. */
async function lockOf(folder: string): Promise<Lock> {
  const entry = `${folder}/dist/index.js`;
  if (!existsSync(entry))
    throw new Error(`${BASELINE} must be a folder with dist/index.js; ${folder} is not.`);
  const other = (await import(pathToFileURL(entry).href)) as { createLocks: typeof createLocks };
  return other.createLocks().mutex("bench");
}

/** Costs: above 1 is slower than what it is compared with. */
function rowOf(what: string, { ours, theirs }: Pair, peer: string, atMost: number | undefined): Row {
  return {
    what: `acquire and release, ${what}`,
    figure: `${whole(spreadOf(ours).median)} ns`,
    peer: `${peer}: ${whole(spreadOf(theirs).median)} ns`,
    result: ratioOf(ours, theirs),
    target: atMost === undefined ? undefined : { atMost },
  };
}

function methodOf(cycles: number, rounds: number): string[] {
  return [
    "A cycle is `const lease = await mutex.acquire(); await lease.release()` over the memory store: the shortest there is, so the " +
      "share that listening takes is the largest. Over a store behind a network the same nanoseconds are lost in a round trip.",
    `Both sides take turns in rounds of ${whole(cycles)} cycles, ${rounds} rounds each after a warm-up, and each round is divided by its ` +
      "neighbour. One client serves both sides; what differs is whether somebody listens during the round.",
    "One row compares nobody with nobody, and so shows how far two measurements of one thing lie apart. Spans of the SDK are " +
      "made in full and then dropped, without an exporter; metrics of the SDK are recorded and not read.",
    `With \`${BASELINE}=<folder>\` another version of the package is measured beside this one, which shows what the feature costs ` +
      "where it is not used.",
  ];
}
