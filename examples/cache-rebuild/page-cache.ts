/** A cache of two files that belong together, and the source that they are made from. Nothing here keeps anybody out. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** What a page is made of. In one piece, both halves are of one version. */
export interface Page {
  readonly head: number;
  readonly body: number;
}

/** How long it takes to work out a page, and to write one half of it. */
const BUILD_MS = 60;
const WRITE_MS = 25;

export class PageCache {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  /** The version of the source, which the cache should be of. */
  async sourceVersion(): Promise<number> {
    return this.#read("source");
  }

  async changeSource(version: number): Promise<void> {
    await this.#write("source", version);
  }

  async page(): Promise<Page> {
    const head = await this.#read("head");
    const body = await this.#read("body");
    return { head, body };
  }

  /** Works out a page. That is what takes long, and it disturbs nobody. */
  async build(): Promise<Page> {
    const version = await this.sourceVersion();
    await sleep(BUILD_MS);
    return { head: version, body: version };
  }

  /** Puts a page in place of the former one, a half at a time. */
  async replace({ head, body }: Page): Promise<void> {
    await this.#write("head", head);
    await sleep(WRITE_MS);
    await this.#write("body", body);
  }

  async #read(name: string): Promise<number> {
    return Number(await readFile(join(this.#folder, name), "utf8"));
  }

  /** Files are this short that a reader gets one whole; it is the two of them that must match. */
  async #write(name: string, version: number): Promise<void> {
    await writeFile(join(this.#folder, name), `${version}`);
  }
}
