/** Bodies that listen to their signal and never stop doing so, in programs that run for months. */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { settled } from "holdfast/testing";
import { expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

async function remaining(used: readonly WeakRef<object>[]): Promise<number> {
  for (let round = 0; round < 5; round++) {
    await settled();
    collectGarbage();
  }
  return used.filter((ref) => ref.deref() !== undefined).length;
}

/** Leaves a listener behind that holds on to something. */
function listen(signal: AbortSignal, used: WeakRef<object>[]): void {
  const something = { bytes: new Uint8Array(1_000) };
  used.push(new WeakRef(something));
  signal.addEventListener("abort", () => void something.bytes.fill(0));
}

test("the listeners of a schedule's runs are forgotten with their runs", async () => {
  const scene = new Scene();
  const used: WeakRef<object>[] = [];
  const options = { ttlMs: TTL_MS };
  const schedule = scene.locks.schedule("job", "* * * * * *", ({ signal }) => listen(signal, used), options);
  for (let tick = 0; tick < 20; tick++) await scene.clock.advance(1_000);
  expect(used.length).toBeGreaterThan(15);
  // The latest run may still be referred to by what it has just come from.
  expect(await remaining(used)).toBeLessThan(3);
  await schedule.stop();
  await scene.locks.close();
});

test("the listeners of an election's terms are forgotten with their terms", async () => {
  const scene = new Scene();
  const used: WeakRef<object>[] = [];
  const election = scene.locks.election("office", { ttlMs: TTL_MS, retryMs: 100 });
  const campaign = election.lead(({ signal }) => listen(signal, used));
  for (let term = 0; term < 20; term++) await scene.clock.advance(100);
  expect(used.length).toBeGreaterThan(15);
  expect(await remaining(used)).toBeLessThan(3);
  await election.resign();
  await campaign;
  await scene.locks.close();
});
