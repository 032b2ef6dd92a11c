/** The files of a folder as LMDB has them, for tests that look at them or spoil them. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as lmdb from "lmdb";
import { openFolder } from "../../../src/stores/file/open-folder.js";

const tables = { encoding: "binary", keyEncoding: "binary" } as const;

/** Opens a file, and closes it when the work is done. */
export async function withFile<T>(
  path: string,
  work: (root: lmdb.RootDatabase<Buffer, Buffer>) => T,
): Promise<T> {
  const root = lmdb.open<Buffer, Buffer>({ path, ...tables, maxDbs: 3, overlappingSync: false });
  try {
    return work(root);
  } finally {
    await root.close();
  }
}

/** The file that says what is true now, while somebody has it open. */
export function livePath(folder: string): string {
  return join(folder, "live.mdb");
}

const withLive: typeof withFile = (folder, work) => withFile(livePath(folder), work);

/** Works on what is found when nobody has the folder open. */
async function withBase<T>(folder: string, work: Parameters<typeof withFile<T>>[1]): Promise<T> {
  // Puts the log into it.
  await (await openFolder(lmdb, folder)).close();
  return withFile(join(folder, "locks.mdb"), work);
}

/** As a machine leaves a folder that was switched off: its time is that of another run. Nobody may have it open. */
export async function restartMachine(folder: string, changes: Partial<FolderState>): Promise<void> {
  await withBase(folder, (root) => changeStateIn(root, { boot: "another", ...changes }));
  spoilLive(folder);
}

/** As a file is that was not written in order: it begins well, and the rest is of no use. */
export function spoilLive(folder: string): void {
  const file = readFileSync(livePath(folder));
  writeFileSync(livePath(folder), file.fill(0xff, 2 * 4_096));
}

/** What a folder knows of itself. */
export interface FolderState {
  readonly format: number;
  readonly versions: number;
  readonly boot: string;
  readonly offsetMs: number;
  readonly lastMs: number;
  readonly lastMonotonicMs: number;
}

const STATE_KEY = Buffer.from("holdfast");

export function readState(folder: string): Promise<FolderState> {
  return withBase(folder, (root) => JSON.parse(root.get(STATE_KEY)?.toString() ?? "{}"));
}

/** Which of the numbers is what, of a folder that somebody has open. */
export const LIVE_FORMAT = 0;
export const LIVE_SUM = 3;

export async function changeLiveNumber(folder: string, place: number, value: number): Promise<void> {
  await withLive(folder, (root) => {
    const state = root.get(STATE_KEY) as Buffer;
    state.writeDoubleLE(value, place * Float64Array.BYTES_PER_ELEMENT);
    root.putSync(STATE_KEY, state);
  });
}

/** Of a folder that nobody has open. */
export async function changeKeptState(folder: string, changes: Partial<FolderState>): Promise<void> {
  await withBase(folder, (root) => changeStateIn(root, changes));
}

function changeStateIn(root: lmdb.RootDatabase<Buffer, Buffer>, changes: Partial<FolderState>): void {
  const state = { ...JSON.parse(root.get(STATE_KEY)?.toString() ?? "{}"), ...changes };
  root.putSync(STATE_KEY, Buffer.from(JSON.stringify(state)));
}

/** Where the log ends, and up to where the tables have it. */
export function settledUpTo(folder: string): Promise<{ readonly end: number; readonly settledEnd: number }> {
  return withLive(folder, (root) => {
    const state = root.get(STATE_KEY) as Buffer;
    return { end: state.readDoubleLE(7 * 8), settledEnd: state.readDoubleLE(12 * 8) };
  });
}

/** How much stands in a row before its text. */
const TEXT_FROM = 17;

/** Puts another text into a row, behind what stands before it. */
export async function changeText(folder: string, key: string, text: string): Promise<void> {
  await withBase(folder, (root) => {
    const records = root.openDB<Buffer, Buffer>("records", tables);
    const row = records.get(Buffer.from(key)) as Buffer;
    records.putSync(Buffer.from(key), Buffer.concat([row.subarray(0, TEXT_FROM), Buffer.from(text)]));
  });
}

export function textOf(folder: string, key: string): Promise<string | undefined> {
  return withBase(folder, (root) => {
    const row = root.openDB<Buffer, Buffer>("records", tables).get(Buffer.from(key));
    return row?.subarray(TEXT_FROM).toString();
  });
}

/** How many transactions have written something so far. */
export function transactions(folder: string): Promise<number> {
  return withLive(folder, (root) => (root.getStats() as { lastTxnId: number }).lastTxnId);
}

/** How many rows each table has. */
export function rowCounts(folder: string): Promise<Readonly<Record<"records" | "ends" | "owners", number>>> {
  return withLive(folder, (root) => {
    const count = (name: string) => root.openDB<Buffer, Buffer>(name, tables).getCount();
    return { records: count("records"), ends: count("ends"), owners: count("owners") };
  });
}
