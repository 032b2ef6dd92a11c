/** One AbortSignal for many calls, as that of a request or of a whole program. */
import { getEventListeners } from "node:events";
import { settled } from "holdfast/testing";
import { expect, onTestFinished, test } from "vitest";
import { onAbort } from "../../src/platform/abort-listeners.ts";
import { Scene } from "./scene.ts";

function warnings(): Error[] {
  const heard: Error[] = [];
  const hear = (warning: Error) => heard.push(warning);
  process.on("warning", hear);
  onTestFinished(() => void process.off("warning", hear));
  return heard;
}

const CALLS = Array.from({ length: 20 }, (_, nth) => nth);

test("many calls share a signal without a warning of a leak, and it cancels them all", async () => {
  const heard = warnings();
  const scene = new Scene();
  const controller = new AbortController();
  const { signal } = controller;
  scene.keep(await scene.locks.mutex("k").acquire());
  const calls = CALLS.flatMap((nth) => [
    scene.begin(scene.locks.mutex("k").acquire({ signal })),
    scene.begin(scene.locks.all([scene.locks.mutex("k"), scene.locks.mutex(`z${nth}`)]).acquire({ signal })),
    scene.begin(scene.locks.election(`office ${nth}`).lead(() => new Promise(() => {}), { signal })),
    scene.begin(scene.locks.election("office").observe({ signal }).next()),
  ]);
  for (const nth of CALLS) scene.locks.schedule(`job ${nth}`, "0 0 1 1 *", () => {}, { signal });
  await scene.clock.advance(10);
  await new Promise(setImmediate);
  expect(heard).toEqual([]);
  expect(getEventListeners(signal, "abort")).toHaveLength(1);
  controller.abort(new Error("enough"));
  await scene.clock.advance(10);
  const waits = calls.filter((_, index) => index % 4 < 2);
  expect(waits.every(({ error }) => (error as Error).message === "enough")).toBe(true);
});

test("a signal that outlives its calls has no listener left", async () => {
  const scene = new Scene();
  const { signal } = new AbortController();
  for (const _ of CALLS) await scene.locks.mutex("k").run(() => {}, { signal });
  expect(getEventListeners(signal, "abort")).toEqual([]);
});

test("what one callback cancels of the same signal is not called any more", async () => {
  const controller = new AbortController();
  const called: string[] = [];
  const subscriptions = { second: () => {} };
  onAbort(controller.signal, () => {
    called.push("first");
    subscriptions.second();
  });
  subscriptions.second = onAbort(controller.signal, () => called.push("second"));
  const third = onAbort(controller.signal, () => called.push("third"));
  controller.abort();
  third();
  third();
  await settled();
  expect(called).toEqual(["first", "third"]);
});
