/** Two flights of many lanes, where the driver works in halves: which lanes fly together. */
import type { CasDriver } from "holdfast/cas";
import { expect, test } from "vitest";
import { attempt, createScene, type Process } from "./scene.ts";

const inHalves = (driver: CasDriver): CasDriver => ({ ...driver, worksInHalves: true });
const inOrder = (driver: CasDriver): CasDriver => ({
  ...inHalves(driver),
  compareKeys: (a, b) => (a < b ? -1 : 1),
});

/** A process that knows the time, so that what it asks for is swapped at once. */
async function begin(wrap: (driver: CasDriver) => CasDriver) {
  const scene = createScene();
  const process = scene.process({ wrap });
  await process.store.acquire(attempt("first", "x"));
  return { scene, process, store: process.store, flights: () => flightsOf(process) };
}

/** The keys of each swap since it was last asked. */
function flightsOf({ requests }: Process): string[][] {
  return requests.splice(0).flatMap(({ batch }) => (batch ? [batch.changes.map(({ key }) => key)] : []));
}

const numbered = (count: number) =>
  Array.from({ length: count }, (_, nth) => attempt(`k${String(nth).padStart(2, "0")}`, `id-${nth}`));

test("cas: many keys are two flights, and few are one", async () => {
  const { store, flights } = await begin(inHalves);
  flights();
  await Promise.all(numbered(31).map((request) => store.acquire(request)));
  expect(flights().map((keys) => keys.length)).toEqual([31]);
  await Promise.all(numbered(31).map((request) => store.release([request])));
  flights();
  await Promise.all(numbered(51).map((request) => store.acquire(request)));
  expect(flights().map((keys) => keys.length)).toEqual([26, 25]);
});

test("cas: while a half is under way, all that gathers is the other", async () => {
  const { scene, process, store, flights } = await begin(inHalves);
  flights();
  process.journeys.push({ backMs: 10 }, { backMs: 20 }, { backMs: 20 });
  const requests = numbered(80);
  const cycles = requests.map(async (request) => {
    await store.acquire(request);
    await store.release([request]);
  });
  await scene.soon(Promise.all(cycles));
  expect(flights().map((keys) => keys.length)).toEqual([40, 40, 40, 40]);
});

test("cas: neighbours in the driver's order fly together", async () => {
  const { store, flights } = await begin(inOrder);
  flights();
  const requests = numbered(40);
  const mixed = [
    ...requests.filter((_, nth) => nth % 2 === 1),
    ...requests.filter((_, nth) => nth % 2 === 0),
  ];
  await Promise.all(mixed.map((request) => store.acquire(request)));
  const keys = requests.map(({ key }) => key);
  expect(flights()).toEqual([keys.slice(0, 20), keys.slice(20)]);
});

test("cas: where not all get a seat, the first to come are the first to go", async () => {
  const { store, flights } = await begin((driver) => ({ ...inOrder(driver), limits: { changes: 16 } }));
  flights();
  const requests = numbered(40).reverse();
  await Promise.all(requests.map((request) => store.acquire(request)));
  expect(new Set(flights()[0])).toEqual(new Set(requests.slice(0, 16).map(({ key }) => key)));
});

test("cas: who had to stay goes before those who come again, whatever its key", async () => {
  const scene = createScene();
  const answers: (() => void)[] = [];
  // Two flights take some of those who want to go, and their answers come together, as over one connection.
  const together = (driver: CasDriver): CasDriver => ({
    ...inOrder(driver),
    limits: { batchBytes: 1_500 },
    async swap(batch) {
      const reply = await driver.swap(batch);
      await new Promise<void>((resolve) => answers.push(resolve));
      return reply;
    },
  });
  const { store } = scene.process({ maxFlights: 2, wrap: together });
  const cycles = numbered(48).map(() => 0);
  let isOver = false;
  const callers = numbered(48).map(async (request, place) => {
    while (!isOver) {
      await store.acquire(request);
      await store.release([request]);
      cycles[place] = (cycles[place] as number) + 1;
    }
  });
  const all = Promise.all(callers);
  for (let round = 0; round < 300; round++) {
    if (round === 200) isOver = true;
    await scene.clock.advance(0);
    for (const answer of answers.splice(0)) answer();
  }
  await all;
  expect(Math.min(...cycles)).toBeGreaterThan(Math.max(...cycles) / 2);
});

test("cas: where one request at a time may be under way, all keys are in it", async () => {
  const scene = createScene();
  const process = scene.process({ maxFlights: 1, wrap: inHalves });
  await process.store.acquire(attempt("first", "x"));
  flightsOf(process);
  await Promise.all(numbered(64).map((request) => process.store.acquire(request)));
  expect(flightsOf(process).map((keys) => keys.length)).toEqual([64]);
});
