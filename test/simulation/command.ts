/** `npm run simulate -- --seeds N [--seed S]`: many histories, or one of them told in full. */
import { parseArgs } from "node:util";
import { runHistory } from "./history.ts";

const { values } = parseArgs({
  options: { seeds: { type: "string" }, seed: { type: "string" }, from: { type: "string" } },
});

if (values.seed !== undefined) {
  const outcome = await runHistory(wholeNumber("--seed", values.seed), true);
  console.log(outcome.log.join("\n"));
  console.log(outcome.failure === undefined ? "nothing wrong" : `FAILED: ${outcome.failure}`);
  process.exit(outcome.failure === undefined ? 0 : 1);
}

const from = wholeNumber("--from", values.from ?? "1");
const count = wholeNumber("--seeds", values.seeds ?? "1000");
const startedMs = performance.now();
let steps = 0;
let grants = 0;
for (let seed = from; seed < from + count; seed++) {
  const outcome = await runHistory(seed);
  steps += outcome.steps;
  grants += outcome.grants;
  if (outcome.failure !== undefined) {
    const traced = await runHistory(seed, true);
    console.log(traced.log.join("\n"));
    console.log(`\nFAILED with seed ${seed}: ${outcome.failure}\nAgain: npm run simulate -- --seed ${seed}`);
    process.exit(1);
  }
  if ((seed - from + 1) % 5_000 === 0) console.log(`${seed - from + 1} histories …`);
}
const seconds = (performance.now() - startedMs) / 1_000;
console.log(
  `${count} histories, ${steps} events, ${grants} grants in ${seconds.toFixed(1)} s: nothing wrong (seeds ${from} to ${from + count - 1})`,
);

function wholeNumber(name: string, text: string): number {
  const number = Number(text);
  if (!Number.isSafeInteger(number) || number < 0) {
    console.error(`${name} must be a whole number, not ${text}.`);
    process.exit(2);
  }
  return number;
}
