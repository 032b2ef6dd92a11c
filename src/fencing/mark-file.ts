/**
 * Marks in a file, which one gate has to itself, by a lock beside it. Two gates would each admit holders that the other knows to be
 * stale: one of them may read the file before the other replaces it.
 *
 * The file is replaced as a whole: written beside it, brought to the disk, renamed, and the rename brought to the
 * disk. A crash at any moment leaves the former file or the new one. All that is to be saved meanwhile goes out together with
 * the next file, so that many writers share the disk's time.
 */
import type { BigIntStats } from "node:fs";
import { open, readFile, rename, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { takeLock } from "../platform/index.ts";
import { HoldfastError, invalid, StoreUnavailableError } from "../store/index.ts";
import { parseFence } from "./fence.ts";
import type { FenceMarks } from "./gate.ts";
import { checkRoom } from "./memory-marks.ts";

const FORMAT = "holdfast fences 1";

export class MarkFile implements FenceMarks {
  readonly #path: string;
  readonly #max: number;
  /** Resolves to what gives the lock back. Undefined while another gate may have it. */
  #lock: Promise<() => void> | undefined;
  /** What the file held when it was last read or written; undefined before it was read. */
  #kept: Map<string, bigint> | undefined;
  #reading: Promise<Map<string, bigint>> | undefined;
  /** What the file is to hold besides, and what somebody waits for. */
  readonly #wanted = new Map<string, bigint>();
  /** What the file looked like when this process last read or wrote it; empty where there was none. */
  #seen = "";
  /** What it will look like once the write that is under way has taken its place. */
  #coming = "";
  /** The write that will take along what is wanted now, and the latest of all. */
  #next: Promise<void> | undefined;
  #last: Promise<void> = Promise.resolve();

  constructor(path: string, max: number) {
    if (typeof path !== "string" || path === "") throw invalid("file must be the path of a file.");
    this.#path = resolve(path);
    this.#max = max;
  }

  async load(resource: string): Promise<bigint | undefined> {
    await this.#own();
    const kept = await this.#marks();
    await this.#checkOwn();
    return kept.get(resource);
  }

  async save(resource: string, fence: bigint): Promise<void> {
    const kept = await this.#marks();
    if (!kept.has(resource)) checkRoom(kept.size + this.#wanted.size, this.#max, resource);
    this.#wanted.set(resource, fence);
    try {
      await this.#flush(kept);
    } finally {
      // Where it failed, nobody is let in with this mark. Whether the disk has it is unknown, and does not matter then.
      this.#wanted.delete(resource);
    }
  }

  close(): void {
    this.#lock?.then(
      (giveBack) => giveBack(),
      () => {},
    );
  }

  async #own(): Promise<void> {
    this.#lock ??= takeLock(`${this.#path}.lock`, 0).then((giveBack) => giveBack ?? refuseSecond(this.#path));
    try {
      await this.#lock;
    } catch (error) {
      this.#lock = undefined;
      throw fileError(error, this.#path);
    }
  }

  /** A file that could not be read is read again by the next one who comes. */
  async #marks(): Promise<Map<string, bigint>> {
    if (this.#kept !== undefined) return this.#kept;
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<Map<string, bigint>> {
    try {
      this.#seen = await this.#look();
      const kept =
        this.#seen === ""
          ? new Map<string, bigint>()
          : decode(await readFile(this.#path, "utf8"), this.#path);
      // Before anybody is told: whoever came in between would read another copy, and its marks would be lost to this one.
      this.#kept = kept;
      return kept;
    } catch (error) {
      throw fileError(error, this.#path);
    }
  }

  /** One write at a time. All who come while one is under way share the next. */
  #flush(kept: Map<string, bigint>): Promise<void> {
    this.#next ??= this.#last
      .catch(() => {})
      .then(() => {
        this.#next = undefined;
        return this.#write(kept, [...this.#wanted]);
      });
    this.#last = this.#next;
    return this.#next;
  }

  async #write(kept: Map<string, bigint>, wanted: readonly (readonly [string, bigint])[]): Promise<void> {
    const beside = `${this.#path}.tmp`;
    try {
      if ((await this.#look()) !== this.#seen) throw foreignWriter(this.#path);
      const file = await open(beside, "w");
      let written: string;
      try {
        await file.writeFile(encode(new Map([...kept, ...wanted])));
        await file.sync();
        // Before the rename: after it, another program may have put another file there.
        written = identity(await file.stat({ bigint: true }));
      } finally {
        await file.close();
      }
      this.#coming = written;
      await rename(beside, this.#path);
      this.#seen = written;
      await syncFolder(dirname(this.#path));
      for (const [resource, fence] of wanted) kept.set(resource, fence);
    } catch (error) {
      throw fileError(error, this.#path);
    }
  }

  /** The file may have been changed by hand, or by a gate where there is no lock. A holder whose mark is here already needs no write, and would not notice. */
  async #checkOwn(): Promise<void> {
    for (;;) {
      const seen = this.#seen;
      const found = await this.#lookOrFail();
      if (found === seen || found === this.#seen || found === this.#coming) return;
      // Unless a write of our own has ended meanwhile.
      if (this.#seen === seen) throw foreignWriter(this.#path);
    }
  }

  async #lookOrFail(): Promise<string> {
    try {
      return await this.#look();
    } catch (error) {
      throw fileError(error, this.#path);
    }
  }

  async #look(): Promise<string> {
    try {
      return identity(await stat(this.#path, { bigint: true }));
    } catch (error) {
      if (codeOf(error) === "ENOENT") return "";
      throw error;
    }
  }
}

/** Tells one file from another that took its place. */
function identity({ ino, size, mtimeNs }: BigIntStats): string {
  return `${ino} ${size} ${mtimeNs}`;
}

async function syncFolder(path: string): Promise<void> {
  // Windows opens no folder, and does not need to.
  if (process.platform === "win32") return;
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function encode(marks: ReadonlyMap<string, bigint>): string {
  const texts = Object.fromEntries([...marks].map(([resource, fence]) => [resource, String(fence)]));
  return `${JSON.stringify({ format: FORMAT, marks: texts }, undefined, 1)}\n`;
}

function decode(text: string, path: string): Map<string, bigint> {
  try {
    const { format, marks } = JSON.parse(text) as { format: unknown; marks: Record<string, string> };
    if (format !== FORMAT) throw invalid(`format must be "${FORMAT}".`);
    return new Map(Object.entries(marks).map(([resource, fence]) => [resource, parseFence(fence)]));
  } catch (error) {
    throw new HoldfastError(
      "STORE_FAILURE",
      `"${path}" has no marks of fences, so the gate admits no write. Restore the right file; without it, the gate would admit stale holders.`,
      { cause: error },
    );
  }
}

function refuseSecond(path: string): never {
  throw new StoreUnavailableError(
    `Another gate, of this or another process, uses "${path}", so this gate admits no write. Close that gate, or end its process.`,
  );
}

function foreignWriter(path: string): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    `Another program has changed "${path}" since this gate read it, so the gate admits no write. Restart the service, and let only gates write to the file.`,
  );
}

/** What will not go away by itself. */
const lasting = new Set(["ENOENT", "ENOTDIR", "EISDIR", "EACCES", "EPERM", "EROFS", "ENAMETOOLONG"]);

function fileError(error: unknown, path: string): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const code = codeOf(error);
  const message = `The marks in "${path}" could not be read or written (${code ?? "unknown"}), so the gate admits no write. Check the folder, its rights and its disk.`;
  return lasting.has(code ?? "")
    ? new HoldfastError("STORE_FAILURE", message, { cause: error })
    : new StoreUnavailableError(message, { cause: error });
}

function codeOf(error: unknown): string | undefined {
  const { code } = Object(error) as { code?: unknown };
  return typeof code === "string" ? code : undefined;
}
