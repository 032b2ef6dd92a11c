/**
 * Checks an LMDB file page by page: every page is used once or free once and has its own number, and the counts of the tables are right. This finds damage by
 * a crash that would go unnoticed for a while.
 *
 * The layout is that of the file's version 2 on machines with eight-byte words: a page begins with 24 bytes (its number,
 * its transaction, flags, and where its nodes begin and end), then has the places of its nodes.
 */
import { readFileSync } from "node:fs";

const PAGE = 4_096;
const HEAD = 24;
const BRANCH = 1;
const BIG_DATA = 1;
const SUB_TABLE = 2;
/** Where the two tables of a meta page, its last page and its transaction stand. */
const META = { free: 48, main: 96, lastPage: 144, transaction: 152 } as const;
/** Where a table says how many entries it has, and where its root is. */
const TABLE = { entries: 32, root: 40 } as const;

export interface PageReport {
  readonly transaction: number;
  readonly used: number;
  readonly free: number;
  readonly entries: Readonly<Record<string, number>>;
  readonly problems: readonly string[];
}

/** No process may write to the file meanwhile. */
export function checkPages(path: string): PageReport {
  return new PageCheck(readFileSync(path)).report();
}

interface Leaf {
  readonly key: Buffer;
  /** Where its data begins in the file. */
  readonly at: number;
  readonly flags: number;
}

class PageCheck {
  readonly #file: Buffer;
  readonly #used = new Map<number, string>();
  readonly #free = new Set<number>();
  readonly #problems: string[] = [];

  constructor(file: Buffer) {
    this.#file = file;
  }

  report(): PageReport {
    const meta = this.#number(META.transaction) > this.#number(PAGE + META.transaction) ? 0 : PAGE;
    for (const { at } of this.#leaves(this.#number(meta + META.free + TABLE.root), "free pages"))
      this.#readFree(at);
    const entries: Record<string, number> = {};
    for (const { key, at, flags } of this.#leaves(this.#number(meta + META.main + TABLE.root), "tables")) {
      if ((flags & SUB_TABLE) === 0) continue;
      const name = key.toString().replaceAll("\0", "");
      entries[name] = this.#leaves(this.#number(at + TABLE.root), name).length;
      const said = this.#number(at + TABLE.entries);
      if (said !== entries[name])
        this.#problems.push(`${name} says ${said} entries, and has ${entries[name]}`);
    }
    for (const [page, what] of this.#used) {
      if (this.#free.has(page)) this.#problems.push(`page ${page} of ${what} is free as well`);
    }
    const [used, free] = [this.#used.size, this.#free.size];
    const pages = this.#number(meta + META.lastPage) - 1;
    if (used + free !== pages)
      this.#problems.push(`of ${pages} pages, ${used} are used and ${free} are free`);
    return {
      transaction: this.#number(meta + META.transaction),
      used,
      free,
      entries,
      problems: this.#problems,
    };
  }

  #number(at: number): number {
    return Number(this.#file.readBigInt64LE(at));
  }

  /** All leaves below a page. An empty table has no page. */
  #leaves(page: number, what: string): Leaf[] {
    if (page < 0 || !this.#use(page, what)) return [];
    const start = page * PAGE;
    if (this.#number(start) !== page) this.#problems.push(`page ${page} of ${what} says that it is another`);
    const isBranch = (this.#file.readUInt16LE(start + 18) & BRANCH) !== 0;
    const count = this.#file.readUInt16LE(start + 20) >> 1;
    const leaves: Leaf[] = [];
    for (let index = 0; index < count; index++) {
      const node = start + HEAD + this.#file.readUInt16LE(start + HEAD + 2 * index);
      if (isBranch) leaves.push(...this.#leaves(this.#file.readUIntLE(node, 6), what));
      else leaves.push(this.#leaf(node, what));
    }
    return leaves;
  }

  #leaf(node: number, what: string): Leaf {
    const flags = this.#file.readUInt16LE(node + 4);
    const keyEnd = node + 8 + this.#file.readUInt16LE(node + 6);
    const key = this.#file.subarray(node + 8, keyEnd);
    if ((flags & BIG_DATA) === 0) return { key, at: keyEnd, flags };
    const first = this.#number(keyEnd);
    const pages = this.#file.readUInt32LE(first * PAGE + 20);
    for (let page = first; page < first + pages; page++) this.#use(page, what);
    return { key, at: first * PAGE + HEAD, flags };
  }

  /** Whether the page is in the file and used once. */
  #use(page: number, what: string): boolean {
    const before = this.#used.get(page);
    if (before !== undefined) this.#problems.push(`page ${page} is used by ${before} and by ${what}`);
    const isThere = (page + 1) * PAGE <= this.#file.length;
    if (!isThere) this.#problems.push(`page ${page} of ${what} is not in the file`);
    this.#used.set(page, what);
    return before === undefined && isThere;
  }

  /** A list of free pages: their number, then pages; a negative number says how many pages begin with the next. */
  #readFree(at: number): void {
    const count = this.#number(at);
    for (let index = 1; index <= count; index++) {
      const entry = this.#number(at + 8 * index);
      const first = entry < 0 ? this.#number(at + 8 * ++index) : entry;
      const length = entry < 0 ? -entry : Math.sign(entry);
      for (let page = first; page < first + length; page++) {
        if (this.#free.has(page)) this.#problems.push(`page ${page} is free twice`);
        this.#free.add(page);
      }
    }
  }
}
