/** A database that confirms what it may lose before it is on the disk, and loses some of it when it crashes. */
import type { CasDriver, SwapBatch } from "holdfast/cas";
import type { MapDatabase } from "../../examples/driver/map-driver.ts";
import type { Random } from "./random.ts";

type Row = MapDatabase["rows"] extends Map<string, infer R> ? R : never;

export class Unflushed {
  readonly #database: MapDatabase;
  /** How to take back what is not on the disk yet, in the order in which it was made. */
  #undo: (() => void)[] = [];

  constructor(database: MapDatabase) {
    this.#database = database;
  }

  /** As the driver of a log that is written in order: whatever waits for the disk takes along all that was made before it. */
  over(driver: CasDriver): CasDriver {
    return {
      ...driver,
      swap: (batch) => {
        const before = batch.changes.map(({ key }) => [key, this.#database.rows.get(key)] as const);
        const swapped = driver.swap(batch);
        const undo = () => {
          for (const [key, row] of before) this.#restore(key, row);
        };
        if (!before.every(([key, row]) => this.#database.rows.get(key) === row)) {
          if (isForgettable(batch)) this.#undo.push(undo);
          else this.#undo = [];
        }
        return swapped;
      },
      ...(driver.sweep === undefined
        ? {}
        : {
            sweep: (limit: number) => {
              this.#undo = [];
              return driver.sweep?.(limit) ?? Promise.resolve(0);
            },
          }),
    };
  }

  /** Loses the latest that is not on the disk: all of it, some of it or nothing. Says how much. */
  crash(random: Random): number {
    const kept = random.integer(0, this.#undo.length);
    const lost = this.#undo.splice(kept);
    for (const undo of lost.reverse()) undo();
    this.#undo = [];
    return lost.length;
  }

  #restore(key: string, row: Row | undefined): void {
    if (row === undefined) this.#database.rows.delete(key);
    else this.#database.rows.set(key, row);
  }
}

function isForgettable({ changes }: SwapBatch): boolean {
  return changes.every(({ endsAnywayMs }) => endsAnywayMs !== undefined);
}
