/**
 * Why claims and records are not found through a Map: `node --expose-gc --import tsx bench/memory/map-churn.ts`.
 *
 * Prints what docs/decisions/0004-finding-claims-by-id.md tells, for a Map and for the index of src/record.
 */
import { IdIndex } from "../../src/record/index.ts";
import { timed } from "../rounds.ts";

class Item {
  readonly id: string;
  idHash = 0;
  idNext: this | undefined = undefined;
  /** What a claim refers to and so keeps alive. */
  readonly load = { texts: ["some", "more"], number: 0.5 };

  constructor(id: string) {
    this.id = id;
  }
}

interface Index {
  add(item: Item): void;
  find(id: string): Item | undefined;
  remove(item: Item): void;
}

class MapIndex implements Index {
  readonly #items = new Map<string, Item>();

  add(item: Item): void {
    this.#items.set(item.id, item);
  }

  find(id: string): Item | undefined {
    return this.#items.get(id);
  }

  remove(item: Item): void {
    this.#items.delete(item.id);
  }
}

const ROUNDS = 50_000;
const QUEUE = 100;

for (const others of [1_000, 200_000]) {
  for (const index of [new MapIndex(), new IdIndex<Item>()]) await showOneKey(index, others);
}
for (const index of [new MapIndex(), new IdIndex<Item>()]) await showQueue(index);

/** One key that comes and goes among others that stay. */
async function showOneKey(index: Index, others: number): Promise<void> {
  for (let other = 0; other < others; other++) index.add(new Item(`other:${other}`));
  const nanoseconds = await timed(ROUNDS, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const item = new Item("key");
      index.add(item);
      index.find("key");
      index.remove(item);
    }
  });
  print(index, `one key coming and going among ${others}`, `${Math.round(nanoseconds)} ns`);
}

/** Many ids that come and go in order, as the waiters of one key do. Shows the garbage that was taken for alive. */
async function showQueue(index: Index): Promise<void> {
  const queue: Item[] = [];
  for (let next = 0; next < QUEUE; next++) join(index, queue, next);
  globalThis.gc?.();
  const nanoseconds = await timed(20 * ROUNDS, async () => {
    for (let round = 0; round < 20 * ROUNDS; round++) {
      const [first] = queue.splice(0, 1);
      index.remove(first!);
      join(index, queue, QUEUE + round);
    }
  });
  globalThis.gc?.({ type: "minor" });
  const beforeBytes = process.memoryUsage().heapUsed;
  globalThis.gc?.();
  const keptBytes = (beforeBytes - process.memoryUsage().heapUsed) / (20 * ROUNDS);
  print(
    index,
    `${QUEUE} ids in a queue`,
    `${Math.round(nanoseconds)} ns, ${keptBytes.toFixed(0)} bytes kept`,
  );
}

function join(index: Index, queue: Item[], number: number): void {
  const item = new Item(`id:${number}`);
  index.add(item);
  queue.push(item);
}

function print(index: Index, what: string, figure: string): void {
  console.log(`${index instanceof MapIndex ? "Map" : "index"}: ${what}: ${figure}`);
}
