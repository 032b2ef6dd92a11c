/** The file of a folder as LMDB has it, for tests that read it or damage it. */
import { join } from "node:path";
import * as lmdb from "lmdb";
import { FORMAT, STATE_KEY } from "../../../src/stores/file/database.ts";

const tables = { encoding: "binary", keyEncoding: "binary" } as const;
type Root = lmdb.RootDatabase<Buffer, Buffer>;

export function databasePath(folder: string): string {
  return join(folder, "locks.mdb");
}

/** Opens the file, which another thread or process may have open, and closes it when the work is done. */
export async function withFile<T>(folder: string, work: (root: Root) => T): Promise<T> {
  const path = databasePath(folder);
  const root = lmdb.open<Buffer, Buffer>({ path, ...tables, maxDbs: 2, overlappingSync: false });
  try {
    return work(root);
  } finally {
    await root.close();
  }
}

export interface FolderState {
  readonly format: number;
  readonly versions: number;
  readonly boot: string;
  readonly offsetMs: number;
  readonly lastMs: number;
  readonly lastMonotonicMs: number;
}

export const OTHER_FORMAT = FORMAT + 1;

export function readState(folder: string): Promise<FolderState> {
  return withFile(folder, (root) => JSON.parse(root.get(STATE_KEY)?.toString() ?? "{}"));
}

export async function changeState(folder: string, changes: Partial<FolderState>): Promise<void> {
  const state = { ...(await readState(folder)), ...changes };
  await withFile(folder, (root) => root.putSync(STATE_KEY, Buffer.from(JSON.stringify(state))));
}

/** The length of a row before its text. */
const TEXT_FROM = 17;

export async function changeText(folder: string, key: string, text: string): Promise<void> {
  await withFile(folder, (root) => {
    const records = root.openDB<Buffer, Buffer>("records", tables);
    const row = records.get(Buffer.from(key)) as Buffer;
    records.putSync(Buffer.from(key), Buffer.concat([row.subarray(0, TEXT_FROM), Buffer.from(text)]));
  });
}

export function textOf(folder: string, key: string): Promise<string | undefined> {
  return withFile(folder, (root) => {
    const row = root.openDB<Buffer, Buffer>("records", tables).get(Buffer.from(key));
    return row?.subarray(TEXT_FROM).toString();
  });
}

/** The number of transactions that have written. */
export function transactions(folder: string): Promise<number> {
  return withFile(folder, (root) => (root.getStats() as { lastTxnId: number }).lastTxnId);
}

export function rowCounts(folder: string): Promise<Readonly<Record<"records" | "ends", number>>> {
  return withFile(folder, (root) => {
    const count = (name: string) => root.openDB<Buffer, Buffer>(name, tables).getCount();
    return { records: count("records"), ends: count("ends") };
  });
}
