/** Counts present things by level. A thing that entered before counting began is ignored when it leaves, so no level is negative. */
export class Presence<Thing extends object, Level> {
  readonly #present = new Map<Thing, Level>();
  readonly #change: (level: Level, by: 1 | -1) => void;

  constructor(change: (level: Level, by: 1 | -1) => void) {
    this.#change = change;
  }

  enter(thing: Thing, level: Level): void {
    if (this.#present.has(thing)) return;
    this.#present.set(thing, level);
    this.#change(level, 1);
  }

  leave(thing: Thing): void {
    const level = this.#present.get(thing);
    if (level === undefined) return;
    this.#present.delete(thing);
    this.#change(level, -1);
  }

  clear(): void {
    for (const thing of [...this.#present.keys()]) this.leave(thing);
  }
}
