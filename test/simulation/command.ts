/**
 * `npm run simulate -- --seeds N [--from S]`: many histories, on all cores. `-- --seed S`: one of them, told in full.
 * `--store cas` is about compare-and-swap stores, every third time over etcd; `--store etcd` is about that one alone.
 */
import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { runHistory, type StoreKind, storeKinds } from "./history.ts";

interface Share {
  readonly from: number;
  readonly count: number;
}

interface Result {
  readonly steps: number;
  readonly grants: number;
  readonly failedSeed: number | undefined;
}

const PROGRESS_EVERY = 10_000;

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "1000" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    store: { type: "string", default: "direct" },
  },
});

const kind = storeKind(values.store);

if (process.send !== undefined)
  runShare(wholeNumber("--from", values.from), wholeNumber("--seeds", values.seeds));
else if (values.seed !== undefined) await tell(wholeNumber("--seed", values.seed));
else await runAll(wholeNumber("--from", values.from), wholeNumber("--seeds", values.seeds));

/** Runs one history and prints everything that happened in it. */
async function tell(seed: number): Promise<void> {
  const { log, failure } = await runHistory(seed, true, kind);
  console.log(log.join("\n"));
  console.log(failure === undefined ? "\nNothing went wrong." : `\nFAILED: ${failure}`);
  process.exitCode = failure === undefined ? 0 : 1;
}

async function runAll(from: number, count: number): Promise<void> {
  const startedMs = performance.now();
  const workers = Math.min(availableParallelism(), count);
  const each = Math.ceil(count / workers);
  const shares = Array.from({ length: workers }, (_, index) => ({
    from: from + index * each,
    count: Math.min(each, count - index * each),
  }));
  const results = await Promise.all(shares.map(inProcess));
  const failed = results.map((result) => result.failedSeed).filter((seed) => seed !== undefined);
  const [first] = failed;
  if (first !== undefined) {
    await tell(first);
    console.log(
      `Seed ${failed.join(" and seed ")} failed. Again: npm run simulate -- --store ${kind} --seed ${first}`,
    );
    return;
  }
  const steps = results.reduce((sum, result) => sum + result.steps, 0);
  const grants = results.reduce((sum, result) => sum + result.grants, 0);
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
  console.log(
    `${count} histories (seeds ${from} to ${from + count - 1}), ${steps} events, ${grants} grants, ${seconds} s.`,
  );
  console.log("Nothing went wrong.");
}

function inProcess({ from, count }: Share): Promise<Result> {
  const child = fork(fileURLToPath(import.meta.url), [
    ...["--from", `${from}`, "--seeds", `${count}`, "--store", kind],
  ]);
  return new Promise((resolve, reject) => {
    child.on("message", (result) => resolve(result as Result));
    child.on("exit", (code) => reject(new Error(`A process of the simulation ended with ${code}.`)));
  });
}

function runShare(from: number, count: number): void {
  // The parent process has ended.
  process.on("disconnect", () => process.exit(1));
  void (async () => {
    let steps = 0;
    let grants = 0;
    for (let seed = from; seed < from + count; seed++) {
      const outcome = await runHistory(seed, false, kind);
      steps += outcome.steps;
      grants += outcome.grants;
      if (outcome.failure !== undefined) return { steps, grants, failedSeed: seed };
      if ((seed - from + 1) % PROGRESS_EVERY === 0) console.log(`… seed ${seed}`);
    }
    return { steps, grants, failedSeed: undefined };
  })().then((result: Result) => {
    process.send?.(result, () => process.exit(0));
  });
}

function storeKind(text: string): StoreKind {
  const found = storeKinds.find((known) => known === text);
  if (found !== undefined) return found;
  console.error(`--store must be one of ${storeKinds.join(", ")}, not "${text}".`);
  process.exit(2);
}

function wholeNumber(name: string, text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number >= 0) return number;
  console.error(`${name} must be a whole number, not "${text}".`);
  process.exit(2);
}
