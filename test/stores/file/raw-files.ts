/** The files of a folder as LMDB has them, for tests that look at them or spoil them. */
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as lmdb from "lmdb";
import { Folder } from "../../../src/stores/file/folder.js";

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

/** The file that says what is true now. */
export function livePath(folder: string): string {
  const name = readdirSync(folder).find((each) => each.startsWith("live") && each.endsWith(".mdb"));
  if (name === undefined) throw new Error(`There is no file of a run in ${folder}.`);
  return join(folder, name);
}

const withLive: typeof withFile = (folder, work) => withFile(livePath(folder), work);

/**
 * As a machine leaves a folder that was switched off: what was true in its run is of no use, and the time is that of another run.
 * Nobody may have it open.
 */
export async function restartMachine(folder: string, changes: Partial<FolderState>): Promise<void> {
  // Puts the log into locks.mdb.
  await (await Folder.open(lmdb, folder)).close();
  const live = livePath(folder);
  for (const path of [live, `${live}-lock`]) rmSync(path);
  writeFileSync(join(folder, "live-another.mdb"), "half of a page");
  await withFile(join(folder, "locks.mdb"), (root) => changeStateIn(root, { boot: "another", ...changes }));
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
  return withLive(folder, (root) => JSON.parse(root.get(STATE_KEY)?.toString() ?? "{}"));
}

export async function changeState(folder: string, changes: Partial<FolderState>): Promise<void> {
  await withLive(folder, (root) => changeStateIn(root, changes));
}

function changeStateIn(root: lmdb.RootDatabase<Buffer, Buffer>, changes: Partial<FolderState>): void {
  const state = { ...JSON.parse(root.get(STATE_KEY)?.toString() ?? "{}"), ...changes };
  root.putSync(STATE_KEY, Buffer.from(JSON.stringify(state)));
}

/** How much stands in a row before its text. */
const TEXT_FROM = 17;

/** Puts another text into a row, behind what stands before it. */
export async function changeText(folder: string, key: string, text: string): Promise<void> {
  await withLive(folder, (root) => {
    const records = root.openDB<Buffer, Buffer>("records", tables);
    const row = records.get(Buffer.from(key)) as Buffer;
    records.putSync(Buffer.from(key), Buffer.concat([row.subarray(0, TEXT_FROM), Buffer.from(text)]));
  });
}

export function textOf(folder: string, key: string): Promise<string | undefined> {
  return withLive(folder, (root) => {
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
