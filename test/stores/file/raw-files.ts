/** The files of a folder as LMDB has them, for tests that look at them or spoil them. */
import { join } from "node:path";
import { open, type RootDatabase } from "lmdb";

const tables = { encoding: "binary", keyEncoding: "binary" } as const;

/** Opens the files, and closes them when the work is done. */
export async function withFiles<T>(
  folder: string,
  work: (root: RootDatabase<Buffer, Buffer>) => T,
): Promise<T> {
  const root = open<Buffer, Buffer>({
    path: join(folder, "locks.mdb"),
    ...tables,
    maxDbs: 3,
    overlappingSync: false,
  });
  try {
    return work(root);
  } finally {
    await root.close();
  }
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
  return withFiles(folder, (root) => JSON.parse(root.get(STATE_KEY)?.toString() ?? "{}"));
}

export async function changeState(folder: string, changes: Partial<FolderState>): Promise<void> {
  await withFiles(folder, (root) => {
    const state = { ...JSON.parse(root.get(STATE_KEY)?.toString() ?? "{}"), ...changes };
    root.putSync(STATE_KEY, Buffer.from(JSON.stringify(state)));
  });
}

/** How much stands in a row before its text. */
const TEXT_FROM = 17;

/** Puts another text into a row, behind what stands before it. */
export async function changeText(folder: string, key: string, text: string): Promise<void> {
  await withFiles(folder, (root) => {
    const records = root.openDB<Buffer, Buffer>("records", tables);
    const row = records.get(Buffer.from(key)) as Buffer;
    records.putSync(Buffer.from(key), Buffer.concat([row.subarray(0, TEXT_FROM), Buffer.from(text)]));
  });
}

export function textOf(folder: string, key: string): Promise<string | undefined> {
  return withFiles(folder, (root) => {
    const row = root.openDB<Buffer, Buffer>("records", tables).get(Buffer.from(key));
    return row?.subarray(TEXT_FROM).toString();
  });
}

/** How many transactions have written something so far. */
export function transactions(folder: string): Promise<number> {
  return withFiles(folder, (root) => (root.getStats() as { lastTxnId: number }).lastTxnId);
}

/** How many rows each table has. */
export function rowCounts(folder: string): Promise<Readonly<Record<"records" | "ends" | "owners", number>>> {
  return withFiles(folder, (root) => {
    const count = (name: string) => root.openDB<Buffer, Buffer>(name, tables).getCount();
    return { records: count("records"), ends: count("ends"), owners: count("owners") };
  });
}
