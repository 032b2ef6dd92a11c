/** A change that was given up is settled by what was written after it, and by nothing that was written before. */
import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { attempt } from "../cas/scene.ts";
import { createScene, type Journey } from "./scene.ts";

/** Writes the key of a lease anew. */
const isSettling = (what: string) =>
  what.includes('"request_put":{"key":"holdfast/a/') && what.includes('"Greater"') && !what.includes(" = ");
const writes = (what: string, key: string) =>
  what.includes(`"request_put":{"key":"holdfast/r/${key}"`) && !what.includes(" = ");

test("etcd: a doubt that arose while another was being settled is settled by itself", async () => {
  /** How long the next signs of life take. */
  const signsMs: number[] = [];
  let answersUntilSlow = Number.POSITIVE_INFINITY;
  const journey: Journey = (what, from) => {
    if (from === "server") return --answersUntilSlow === 0 ? 879 : 1;
    if (isSettling(what)) {
      // The answer to this one is late.
      answersUntilSlow = 1;
      return 1;
    }
    if (writes(what, "lost")) return Number.POSITIVE_INFINITY;
    if (writes(what, "late")) return 1_700;
    return what === "keep-alive" ? (signsMs.shift() ?? 1) : 1;
  };
  // Without sweeps, whose answers would prove the lease.
  const { store, soon, pass, recordOf } = createScene(journey, { keepIdleMs: 300_000 });
  const step = async (ms: number) => {
    await setImmediate();
    await pass(ms);
    await setImmediate();
  };
  const ask = (key: string) => store.acquire(attempt(key, "a")).catch((error: Error) => error);
  expect(await soon(store.acquire(attempt("first", "a")))).toMatchObject({ state: "held" });
  // Half of the life of the lease has passed, so each change is preceded by a sign of life.
  await pass(5_200);
  void ask("lost");
  await step(850);
  // 1. These two have nothing to doubt yet, and wait for their signs of life.
  signsMs.push(300, 100);
  const late = ask("late");
  await step(1);
  void ask("refused");
  await step(59);
  // 2. The first change was given up, which this one settles. The answer to that is slow, but "refused" learns of it before, by its refusal.
  void ask("settling");
  // 3. "late" goes out with what was learnt, and is given up on its way.
  await step(845);
  expect(await soon(late)).toMatchObject({ code: "STORE_UNAVAILABLE" });
  // 4. The answer of 2 has come. Its caller gives back what it may have, and finds nothing.
  const released = soon(store.release([attempt("late", "a")]));
  await step(200);
  await released;
  // 5. "late" would arrive now.
  await step(3_000);
  for (let turn = 0; turn < 5; turn++) {
    await soon(store.acquire(attempt(`other-${turn}`, "a")));
    await pass(3_000);
  }
  expect(recordOf("late")?.held ?? []).toEqual([]);
});
