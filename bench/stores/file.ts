/** A folder: the store against proper-lockfile, which makes a folder for each lock and keeps nothing on purpose. */
import {
  closeSync,
  constants,
  fdatasyncSync,
  fstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import type { Store } from "holdfast";
import { fileStore } from "holdfast/file";
import { lock } from "proper-lockfile";
import type { OpenContender } from "./contender.ts";

/** In a folder of its own below this one. */
export async function openFile(parent: string): Promise<OpenContender> {
  const folder = mkdtempSync(join(parent, "holdfast-bench-"));
  const data = join(folder, "data");
  const stores: Store[] = [];
  return {
    async newStore() {
      const store = fileStore(data);
      stores.push(store);
      return store;
    },
    roundTrips: () => commitsIn(liveFile(data)),
    roundTripsAre: "commits",
    url: `file:${data}`,
    peers: {
      "proper-lockfile": async (key) => {
        const path = join(folder, encodeURIComponent(key));
        return lock(path, { realpath: false, retries: { retries: 1_000, minTimeout: 1, maxTimeout: 20 } });
      },
    },
    bare: async (roundMs, callers) => bareWrites(join(folder, "bare"), roundMs, callers),
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const PAGE_BYTES = 4_096;
/** Where each of the first two pages of a file of LMDB has the number of the commit that it describes. */
const COMMIT_AT = 152;

/** The file that says what is true now. Every transaction that changes something is a commit of it. */
function liveFile(folder: string): string {
  const name = readdirSync(folder).find((each) => each.startsWith("live") && each.endsWith(".mdb"));
  if (name === undefined) throw new Error(`There is no file of the present run in ${folder}.`);
  return join(folder, name);
}

function commitsIn(path: string): number {
  const descriptor = openSync(path, constants.O_RDONLY);
  const commitOf = (page: number) => {
    const bytes = Buffer.alloc(8);
    readSync(descriptor, bytes, 0, 8, page * PAGE_BYTES + COMMIT_AT);
    return Number(bytes.readBigUInt64LE());
  };
  const commits = Math.max(commitOf(0), commitOf(1));
  closeSync(descriptor);
  return commits;
}

/** What a grant and a release write to the log. */
const GRANT_BYTES = 268;
const RELEASE_BYTES = 98;
/** How long the log becomes before it is written anew from its beginning. */
const LOG_BYTES = 4_194_304;

/**
 * What the disk could make of it if nothing else took any time: for each half of the callers, what their grants write and a flush, and what their
 * releases write. What it takes for each caller, in nanoseconds.
 */
function bareWrites(path: string, roundMs: number, callers: number): number {
  // What was there stays, so that only its contents are new to the disk.
  const descriptor = openSync(path, constants.O_CREAT | constants.O_RDWR);
  if (fstatSync(descriptor).size < LOG_BYTES) writeSync(descriptor, Buffer.alloc(LOG_BYTES));
  const grants = Buffer.alloc((GRANT_BYTES * callers) / 2, 1);
  const releases = Buffer.alloc((RELEASE_BYTES * callers) / 2, 1);
  let at = 0;
  const write = (bytes: Buffer) => {
    if (at + bytes.length > LOG_BYTES) at = 0;
    at += writeSync(descriptor, bytes, 0, bytes.length, at);
  };
  const startMs = performance.now();
  let cycles = 0;
  do {
    write(grants);
    fdatasyncSync(descriptor);
    write(releases);
    cycles += callers / 2;
  } while (performance.now() - startMs < roundMs);
  closeSync(descriptor);
  return ((performance.now() - startMs) * 1e6) / cycles;
}
