/**
 * What a disk has of a folder, reckoned: what was flushed, and any part of what was written since. The logs are reckoned by sectors. A
 * commit of `locks.mdb` is on the disk when it is made; LMDB sees to that.
 *
 * Whoever uses this has `fdatasyncSync` and `writeSync` of `node:fs` mocked.
 */
import { cpSync, fdatasyncSync, fstatSync, readFileSync, statSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import * as lmdb from "lmdb";
import { expect, vi } from "vitest";
import type { Folder } from "../../../src/stores/file/folder.js";
import { openFolder } from "../../../src/stores/file/open-folder.js";
import type { ReadReply, SwapReply } from "../../../src/stores/file/protocol.ts";
import { answer } from "../../../src/stores/file/requests.js";
import type { Random } from "../../simulation/random.ts";
import { testFolder } from "./folders.ts";
import { letter, reading } from "./letters.ts";
import { livePath, spoilLive } from "./raw-files.ts";

const SECTOR_BYTES = 512;
const LOGS = ["log-0", "log-1"] as const;

export const failedFlush = () => Object.assign(new Error("EIO: i/o error, fdatasync"), { code: "EIO" });

/** What is there when the power is lost. */
export interface Image {
  readonly base: Buffer;
  readonly logs: readonly Buffer[];
}

/** A log: what the disk has, and for each sector what was written to it since, the latest last. */
class ReckonedLog {
  #onDisk: Buffer;
  readonly #written = new Map<number, Buffer[]>();
  readonly path: string;

  constructor(path: string) {
    this.path = path;
    this.#onDisk = readFileSync(path);
  }

  /** These bytes were written. */
  wrote(at: number, length: number): void {
    const file = readFileSync(this.path);
    for (let sector = Math.floor(at / SECTOR_BYTES); sector * SECTOR_BYTES < at + length; sector++) {
      const start = sector * SECTOR_BYTES;
      const versions = this.#written.get(sector) ?? [];
      versions.push(Buffer.from(file.subarray(start, start + SECTOR_BYTES)));
      this.#written.set(sector, versions);
    }
  }

  flushed(): void {
    this.#onDisk = this.#with((versions) => versions.at(-1));
    this.#written.clear();
  }

  /** The system could write some of it, and takes all of it for written. */
  failed(random: Random): void {
    this.#onDisk = this.image(random);
    this.#written.clear();
  }

  /** Any part of what was written since, in any order. */
  image(random: Random): Buffer {
    return this.#with((versions) => versions[random.integer(-1, versions.length - 1)]);
  }

  #with(choose: (versions: readonly Buffer[]) => Buffer | undefined): Buffer {
    const file = Buffer.alloc(statSync(this.path).size);
    this.#onDisk.copy(file);
    for (const [sector, versions] of this.#written) choose(versions)?.copy(file, sector * SECTOR_BYTES);
    return file;
  }
}

export interface DiskOptions {
  readonly folder: string;
  readonly random: Random;
  /** Whose texts are looked at. */
  readonly keys: readonly string[];
}

export class ReckonedDisk {
  readonly #options: DiskOptions;
  readonly #logs: readonly ReckonedLog[];
  /** How many flushes fail from now on. */
  failingFlushes = 0;
  /** How many entries are written to a log, and fail all the same, from now on. */
  failingWrites = 0;
  /** Called before each write and each flush, and after it. */
  onMoment = () => {};
  #isElsewhere = false;

  /** Of a folder that has been used before, so that it has all of its files. */
  constructor(options: DiskOptions) {
    this.#options = options;
    this.#logs = LOGS.map((name) => new ReckonedLog(join(options.folder, name)));
    vi.mocked(fdatasyncSync).mockImplementation((descriptor) => this.#flush(this.#logOf(descriptor)));
  }

  /** Needs the real one, to write with. */
  watchWrites(write: typeof writeSync): void {
    const watched = (descriptor: number, bytes: Uint8Array, from: number, length: number, at: number) => {
      const log = this.#logOf(descriptor);
      if (log === undefined) return write(descriptor, bytes, from, length, at);
      this.onMoment();
      const written = write(descriptor, bytes, from, length, at);
      log.wrote(at, written);
      this.onMoment();
      // What makes a file grow is not meant.
      if (this.failingWrites === 0 || bytes.every((byte) => byte === 0)) return written;
      this.failingWrites--;
      throw Object.assign(new Error("EIO: i/o error, write"), { code: "EIO" });
    };
    vi.mocked(writeSync).mockImplementation(watched as typeof writeSync);
  }

  image(): Image {
    const { folder, random } = this.#options;
    return {
      base: readFileSync(join(folder, "locks.mdb")),
      logs: this.#logs.map((log) => log.image(random)),
    };
  }

  /** The texts that are there when the power is back. Whatever is done next finds the files whole. */
  async textsIn({ base, logs }: Image): Promise<string> {
    this.#isElsewhere = true;
    const { keys } = this.#options;
    const folder = testFolder();
    writeFileSync(join(folder, "locks.mdb"), base);
    for (const [index, log] of logs.entries()) writeFileSync(join(folder, LOGS[index] as string), log);
    cpSync(livePath(this.#options.folder), livePath(folder));
    spoilLive(folder);
    const found = await openFolder(lmdb, folder);
    const records = recordsOf(found, keys);
    const next = keys.map((key, index) => ({ key, text: "later", expected: records[index]?.version ?? 0 }));
    const { others } = found.transact(() => answer(found, letter(0, next).request)) as SwapReply;
    expect(others).toEqual([]);
    await found.close();
    // And if it is lost once more.
    spoilLive(folder);
    const again = await openFolder(lmdb, folder);
    expect(recordsOf(again, keys).map((row) => row?.text)).toEqual(keys.map(() => "later"));
    await again.close();
    this.#isElsewhere = false;
    return textsOf(records);
  }

  #flush(log: ReckonedLog | undefined): void {
    if (this.#isElsewhere) return;
    this.onMoment();
    if (this.failingFlushes > 0) {
      this.failingFlushes--;
      log?.failed(this.#options.random);
      throw failedFlush();
    }
    log?.flushed();
    this.onMoment();
  }

  #logOf(descriptor: number): ReckonedLog | undefined {
    if (this.#isElsewhere) return undefined;
    const { ino } = fstatSync(descriptor);
    return this.#logs.find((log) => statSync(log.path).ino === ino);
  }
}

export function textsOf(rows: ReadReply["rows"]): string {
  return JSON.stringify(rows.map((row) => row?.text));
}

export function recordsOf(files: Folder, keys: readonly string[]): ReadReply["rows"] {
  return (files.transact(() => answer(files, reading(0, keys).request)) as ReadReply).rows;
}
