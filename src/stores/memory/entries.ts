import {
  clearRecord,
  emptyRecord,
  IdIndex,
  isIdle,
  type LockRecord,
  type RecordClaim,
  restoreRecord,
  soleClaim,
} from "../../record/index.ts";

/** What is known of one key, its place in the index, and its neighbours in the order of creation. */
export class Entry {
  /** The key: what an entry is found by. */
  readonly id: string;
  /** Its number among all that were ever created, which is the order of listing. */
  readonly serial: number;
  /** The record, once it has been more than one claim that is held. */
  record: LockRecord | undefined = undefined;
  /** That claim, which is all there is to most keys. A record around it would take 144 bytes. */
  sole: RecordClaim | undefined = undefined;
  idHash = 0;
  idNext: this | undefined = undefined;
  before: Entry | undefined;
  after: Entry | undefined = undefined;

  constructor(key: string, serial: number, before: Entry | undefined) {
    this.id = key;
    this.serial = serial;
    this.before = before;
  }
}

/** Who goes through the entries a few at a time. An entry that is removed meanwhile moves the place to the next one. */
export interface Place {
  next: Entry | undefined;
}

/**
 * The records of a store by key, and in the order of their creation.
 *
 * A Map would be both, but not for locks, which come and go with the same key. V8 leaves a removed entry in its chain
 * until the whole table is copied, so a key that comes and goes is searched for among all its former entries: with
 * 200,000 other keys held, a lock cycle took 350 µs. docs/decisions/0004-finding-claims-by-id.md has the figures.
 */
export class Entries {
  readonly #byKey = new IdIndex<Entry>();
  readonly #places: readonly Place[];
  #first: Entry | undefined;
  #last: Entry | undefined;
  #serial = 0;
  /** An empty record, to work with where an entry has none. */
  #spare: LockRecord | undefined;

  /** The places are kept right when entries are removed. */
  constructor(...places: readonly Place[]) {
    this.#places = places;
  }

  get size(): number {
    return this.#byKey.size;
  }

  get first(): Entry | undefined {
    return this.#first;
  }

  find(key: string): Entry | undefined {
    return this.#byKey.find(key);
  }

  /** Makes an empty record for a key that has none. */
  create(key: string): Entry {
    const entry = new Entry(key, ++this.#serial, this.#last);
    if (this.#last === undefined) this.#first = entry;
    else this.#last.after = entry;
    this.#last = entry;
    this.#byKey.add(entry);
    return entry;
  }

  /** The record of an entry, until it is closed. */
  open(entry: Entry): LockRecord {
    if (entry.record !== undefined) return entry.record;
    const record = this.#spare ?? emptyRecord();
    this.#spare = undefined;
    if (entry.sole !== undefined) restoreRecord(record, entry.sole);
    return record;
  }

  /** Keeps what has become of the record of an entry. */
  close(entry: Entry, record: LockRecord): void {
    if (entry.record !== undefined) return;
    entry.sole = soleClaim(record);
    if (entry.sole === undefined && !isIdle(record)) {
      entry.record = record;
    } else {
      clearRecord(record);
      this.#spare = record;
    }
  }

  /** Removes an entry that is here. */
  remove(entry: Entry): void {
    for (const place of this.#places) {
      if (place.next === entry) place.next = entry.after;
    }
    this.#byKey.remove(entry);
    if (entry.before === undefined) this.#first = entry.after;
    else entry.before.after = entry.after;
    if (entry.after === undefined) this.#last = entry.before;
    else entry.after.before = entry.before;
    // A removed entry that refers to a living one would keep it from being collected young.
    entry.before = undefined;
    entry.after = undefined;
  }

  /** The first entry that was created after the one with this serial. */
  afterSerial(serial: number): Entry | undefined {
    let entry = this.#first;
    while (entry !== undefined && entry.serial <= serial) entry = entry.after;
    return entry;
  }
}
