/**
 * Finds things by id: a hash table with its links inside the items, for indexes that see an insert and a removal with
 * every lock cycle.
 *
 * A Map would do, but V8's copies itself every so often under such a load, each old copy referring to the next: once
 * one of them is in the old generation, the young collector takes all that follow for alive. With 100 contenders on a
 * key that was a third of the time. Here nothing is allocated, and a removed item refers to nothing.
 */
export interface Indexed {
  readonly id: string;
  /** The hash of the id. */
  idHash: number;
  /** The next item in the same bucket. */
  idNext: this | undefined;
}

export class IdIndex<T extends Indexed> {
  #buckets: (T | undefined)[] = new Array<T | undefined>(16).fill(undefined);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds an item. Several may have the same id. */
  add(item: T): void {
    if (this.#size === this.#buckets.length) this.#grow();
    item.idHash = hashOf(item.id);
    this.#link(item);
    this.#size++;
  }

  /** The item with this id; where several may have it, the one that is also the right one. */
  find(id: string, isRight?: (item: T) => boolean): T | undefined {
    const hash = hashOf(id);
    let item = this.#buckets[hash & (this.#buckets.length - 1)];
    // The hashes first: among a million items the id of another one is far away, and reading it would cost the most.
    while (item !== undefined && (item.idHash !== hash || item.id !== id || isRight?.(item) === false)) {
      item = item.idNext;
    }
    return item;
  }

  /** Removes an item that is in the index. */
  remove(item: T): void {
    const bucket = item.idHash & (this.#buckets.length - 1);
    let before = this.#buckets[bucket];
    if (before === item) {
      this.#buckets[bucket] = item.idNext;
    } else {
      while (before !== undefined && before.idNext !== item) before = before.idNext;
      if (before === undefined) return;
      before.idNext = item.idNext;
    }
    item.idNext = undefined;
    this.#size--;
  }

  *values(): Generator<T> {
    for (let item of this.#buckets) {
      for (; item !== undefined; item = item.idNext) yield item;
    }
  }

  #link(item: T): void {
    const bucket = item.idHash & (this.#buckets.length - 1);
    item.idNext = this.#buckets[bucket];
    this.#buckets[bucket] = item;
  }

  #grow(): void {
    const buckets = this.#buckets;
    this.#buckets = new Array<T | undefined>(buckets.length * 4).fill(undefined);
    for (let item of buckets) {
      while (item !== undefined) {
        const next: T | undefined = item.idNext;
        this.#link(item);
        item = next;
      }
    }
  }
}

/** Differs from process to process, so that nobody can choose ids that all fall into one bucket. */
const seed = Math.floor(Math.random() * 0x1_0000_0000);

/** FNV-1a over UTF-16 units, with a last mix so that the low bits depend on all of it. */
function hashOf(id: string): number {
  let hash = seed ^ 0x811c9dc5;
  for (let index = 0; index < id.length; index++) {
    hash = Math.imul(hash ^ id.charCodeAt(index), 0x01000193);
  }
  return hash ^ (hash >>> 15);
}
