/**
 * Finds things by id: a hash table with its links inside the items, for indexes that see an insert and a removal with
 * every lock cycle.
 *
 * A Map would do, but V8's copies itself every so often under such a load, each old copy referring to the next: once
 * one of them is in the old generation, the young collector takes all that follow for alive. With 100 contenders on a
 * key that was a third of the time. Here nothing is allocated, and a removed item refers to nothing.
 *
 * Most items are removed soon, so the latest have a small table to themselves. A lock cycle then stays within the caches
 * of the processor, however many items have stayed: docs/decisions/0021-many-held-keys.md.
 */
export interface Indexed {
  readonly id: string;
  /** The hash of the id. */
  idHash: number;
  /** The next item in the same bucket. */
  idNext: this | undefined;
}

/** How many items make up the latest ones, before they all count as having stayed. */
const MAX_LATEST = 1_024;

export class IdIndex<T extends Indexed> {
  readonly #latest = new HashTable<T>();
  #stayed: HashTable<T> | undefined;

  get size(): number {
    return this.#latest.size + (this.#stayed?.size ?? 0);
  }

  /** Adds an item. Several may have the same id. */
  add(item: T): void {
    if (this.#latest.size === MAX_LATEST) {
      this.#stayed ??= new HashTable();
      this.#latest.moveTo(this.#stayed);
    }
    item.idHash = hashOf(item.id);
    this.#latest.add(item);
  }

  /** The item with this id; where several may have it, the one that is also the right one. */
  find(id: string, isRight?: (item: T) => boolean): T | undefined {
    const hash = hashOf(id);
    return this.#latest.find(id, hash, isRight) ?? this.#stayed?.find(id, hash, isRight);
  }

  /** Removes an item that is in the index. */
  remove(item: T): void {
    if (!this.#latest.remove(item)) this.#stayed?.remove(item);
  }

  *values(): Generator<T> {
    yield* this.#latest.values();
    if (this.#stayed !== undefined) yield* this.#stayed.values();
  }
}

class HashTable<T extends Indexed> {
  size = 0;
  #buckets: (T | undefined)[] = emptyBuckets(16);
  /**
   * The marks of all items in a bucket. An item that is not there is mostly missed by these already, at the price of one look
   * into two bytes a bucket. To follow the bucket, and the items in it, is to wait for main memory two or three times.
   */
  #marks = new Uint16Array(16);

  add(item: T): void {
    if (this.size === this.#buckets.length) this.#grow();
    this.#link(item);
    this.size++;
  }

  find(id: string, hash: number, isRight: ((item: T) => boolean) | undefined): T | undefined {
    const bucket = this.#bucketOf(hash);
    if (!this.#mayContain(bucket, hash)) return undefined;
    let item = this.#buckets[bucket];
    // The hashes first: among a million items the id of another one is far away, and reading it would cost the most.
    while (item !== undefined && (item.idHash !== hash || item.id !== id || isRight?.(item) === false)) {
      item = item.idNext;
    }
    return item;
  }

  /** Whether the item was here. */
  remove(item: T): boolean {
    const bucket = this.#bucketOf(item.idHash);
    if (!this.#mayContain(bucket, item.idHash) || !this.#unlink(bucket, item)) return false;
    item.idNext = undefined;
    this.size--;
    let marks = 0;
    for (let left = this.#buckets[bucket]; left !== undefined; left = left.idNext) {
      marks |= marksOf(left.idHash);
    }
    this.#marks[bucket] = marks;
    return true;
  }

  moveTo(other: HashTable<T>): void {
    const buckets = this.#buckets;
    forEachItem(buckets, (item) => other.add(item));
    buckets.fill(undefined);
    this.#marks.fill(0);
    this.size = 0;
  }

  *values(): Generator<T> {
    for (let item of this.#buckets) {
      for (; item !== undefined; item = item.idNext) yield item;
    }
  }

  #bucketOf(hash: number): number {
    return hash & (this.#buckets.length - 1);
  }

  #mayContain(bucket: number, hash: number): boolean {
    const marks = marksOf(hash);
    return ((this.#marks[bucket] as number) & marks) === marks;
  }

  #link(item: T): void {
    const bucket = this.#bucketOf(item.idHash);
    item.idNext = this.#buckets[bucket];
    this.#buckets[bucket] = item;
    this.#marks[bucket] = (this.#marks[bucket] as number) | marksOf(item.idHash);
  }

  /** Whether the item was there to be taken out. */
  #unlink(bucket: number, item: T): boolean {
    let before = this.#buckets[bucket];
    if (before === item) {
      this.#buckets[bucket] = item.idNext;
      return true;
    }
    while (before !== undefined && before.idNext !== item) before = before.idNext;
    if (before === undefined) return false;
    before.idNext = item.idNext;
    return true;
  }

  #grow(): void {
    const buckets = this.#buckets;
    this.#buckets = emptyBuckets(buckets.length * 4);
    this.#marks = new Uint16Array(buckets.length * 4);
    forEachItem(buckets, (item) => this.#link(item));
  }
}

function emptyBuckets<T>(length: number): (T | undefined)[] {
  return new Array<T | undefined>(length).fill(undefined);
}

/** Visits each item, which may be put elsewhere meanwhile. */
function forEachItem<T extends Indexed>(buckets: readonly (T | undefined)[], visit: (item: T) => void): void {
  for (let item of buckets) {
    while (item !== undefined) {
      const next: T | undefined = item.idNext;
      visit(item);
      item = next;
    }
  }
}

/** Two of sixteen bits, or one, by the part of the hash that does not choose the bucket. */
function marksOf(hash: number): number {
  return (1 << (hash >>> 28)) | (1 << ((hash >>> 24) & 15));
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
