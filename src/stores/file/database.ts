/**
 * The file `locks.mdb` of a folder, which all processes of the machine share. It has a row for each key, in the table `records`, and an
 * entry for each row in `ends`, ordered by the time at which the row may be removed. The folder's state is under one key beside them.
 *
 * LMDB gives one process at a time a write transaction, and flushes a commit before it returns. Reads use write transactions too:
 * they never see a commit that is not on the disk, and a killed reader leaves no snapshot behind.
 */
import { closeSync, constants, fstatSync, openSync } from "node:fs";
import type { RootDatabase, Database as Table } from "lmdb";
import {
  alignedTime,
  firstTime,
  type KeptTime,
  type MachineTime,
  readMonotonicMs,
  resumedTime,
  thisMachine,
  timeOf,
} from "./clock.ts";
import { checkCommit, growTo, type Heads, rewriteHeads } from "./pages.ts";
import { codedError } from "./protocol.ts";
import { endKey, isIdle, keptUntilMs, keyOf, type NewRow, rowBytes } from "./rows.ts";

type Lmdb = typeof import("lmdb");
type Rows = Table<Buffer, Buffer>;

interface State extends KeptTime {
  readonly format: number;
  /** The latest version that a row was given. */
  readonly versions: number;
}

export const FORMAT = 1;
export const STATE_KEY = Buffer.from("holdfast");
/** LMDB reserves address space for the file, and more if the file outgrows it. */
const MAP_BYTES = 1_073_741_824;
const MAX_PROCESSES = 1_024;
/** Pages that a change moves at most: a few in each of two trees. */
const CHANGE_PAGES = 4;
/** Pages that every transaction may need, for the state and the list of free pages. */
const OTHER_PAGES = 16;
/** A large row may fill less than half of its page. */
const SLACK = 3;
const NOTHING = Buffer.from([0]);
const binary = { encoding: "binary", keyEncoding: "binary", cache: false } as const;

export class Database {
  readonly #root: RootDatabase<Buffer, Buffer>;
  readonly #descriptor: number;
  #records!: Rows;
  #ends!: Rows;
  #fileBytes = 0;
  /** Of the present transaction. */
  #heads: Heads = { lastPage: 0, pageBytes: 0 };
  #state!: State;
  #isChanged = false;
  #changes = 0;
  #bytes = 0;

  private constructor(root: RootDatabase<Buffer, Buffer>, descriptor: number) {
    this.#root = root;
    this.#descriptor = descriptor;
  }

  /** Opens the file, or makes it. The caller has checked the file (readiness.ts), and calls begin() next. */
  static open({ open }: Lmdb, path: string): Database {
    const descriptor = openSync(path, constants.O_RDWR | constants.O_CREAT);
    try {
      const sizes = { mapSize: MAP_BYTES, maxDbs: 2, maxReaders: MAX_PROCESSES };
      const root = open<Buffer, Buffer>({ path, ...binary, ...sizes, overlappingSync: false });
      return new Database(root, descriptor);
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
  }

  /** Makes sure that the file is ours, and continues its time. */
  begin(machine = thisMachine()): void {
    this.#run(() => {
      rewriteHeads(this.#descriptor);
      this.#makeRoom(0);
      if ([...this.#root.getKeys({ limit: 1 })].length > 0) this.#readState();
      else this.#writeStateOf({ format: FORMAT, versions: 0, ...firstTime(machine) });
    });
    this.#records = this.#root.openDB("records", binary);
    this.#ends = this.#root.openDB("ends", binary);
    this.transact(() => {
      this.#makeRoom(0);
      const time = resumedTime(this.#state, machine);
      if (time !== this.#state) this.#state = { ...this.#state, ...this.#aligned(time, machine) };
      // A folder may come back as it was earlier, while a process remembers later versions. So each opening begins at random.
      this.#state = { ...this.#state, versions: Math.floor(Math.random() * 2 ** 52) };
      this.#isChanged = true;
    });
  }

  /** Runs the work in one transaction. If the work or the commit fails, close the database: the outcome may be unknown. */
  transact<T>(work: () => T): T {
    return this.#run(() => {
      this.#state = this.#readState();
      const result = work();
      if (this.#isChanged) this.#writeState();
      return result;
    });
  }

  nowMs(): number {
    return timeOf(this.#state, readMonotonicMs());
  }

  /** A version that no row of the folder has had. */
  nextVersion(): number {
    const versions = this.#state.versions + 1;
    this.#state = { ...this.#state, versions };
    return versions;
  }

  /** The row of a key, valid until the next call. */
  get(key: Buffer): Buffer | undefined {
    return this.#records.getBinaryFast(key);
  }

  /** Throws before it changes anything if the disk has no room. */
  put(key: Buffer, row: NewRow, isNew: boolean): void {
    const bytes = rowBytes(row);
    this.#makeRoom(bytes.length + 2 * key.length);
    this.#records.putSync(key, bytes);
    // A later change leaves the entry in place; the sweep moves it. Most rows change often before they end.
    if (isNew) this.#ends.putSync(endKey(row.keepUntilMs, key), NOTHING);
    this.#isChanged = true;
  }

  list(start: Buffer, limit: number): readonly { readonly key: Buffer; readonly value: Buffer }[] {
    return [...this.#records.getRange(start.length === 0 ? { limit } : { start, limit })];
  }

  /** Looks at the first entries of `ends`, and removes at most `limit` rows. */
  removeEnded(looks: number, limit: number): { readonly removed: number; readonly looked: number } {
    const nowMs = this.nowMs();
    let [removed, looked] = [0, 0];
    for (const { key: entry } of [...this.#ends.getRange({ end: endKey(nowMs, NOTHING), limit: looks })]) {
      if (removed === limit) break;
      looked++;
      const key = keyOf(entry);
      this.#makeRoom(entry.length);
      this.#isChanged = true;
      const row = this.get(key);
      const untilMs = row === undefined ? 0 : keptUntilMs(row);
      this.#ends.removeSync(entry);
      if (untilMs >= nowMs) {
        this.#ends.putSync(endKey(untilMs, key), NOTHING);
        continue;
      }
      this.#records.removeSync(key);
      removed++;
    }
    return { removed, looked };
  }

  async close(): Promise<void> {
    closeSync(this.#descriptor);
    await this.#root.close();
  }

  /** A claim may belong to another machine, so the wall clock counts only if no row has a claim. */
  #aligned(time: KeptTime, machine: MachineTime): KeptTime {
    const nowMs = timeOf(time, machine.monotonicMs);
    for (const { value } of this.#records.getRange({})) {
      if (!isIdle(value) && keptUntilMs(value) > nowMs) return time;
    }
    return alignedTime(time, machine);
  }

  #run<T>(work: () => T): T {
    return this.#root.transactionSync(() => {
      this.#heads = checkCommit(this.#descriptor, this.#root.getWriteTxnId());
      if (fstatSync(this.#descriptor).nlink === 0) throw codedError("STALE", "the file was removed");
      this.#isChanged = false;
      this.#changes = 0;
      this.#bytes = 0;
      return work();
    });
  }

  /** Makes the file large enough for one more change of so many bytes, before LMDB writes it. */
  #makeRoom(bytes: number): void {
    const { lastPage, pageBytes } = this.#heads;
    const [allChanges, allBytes] = [this.#changes + 1, this.#bytes + bytes];
    const moved = Math.min(CHANGE_PAGES * allChanges, lastPage);
    // The list of free pages takes eight bytes for each page that moved, on pages that may be half empty.
    const pages = moved + moved / 128 + (SLACK * allBytes) / pageBytes + OTHER_PAGES;
    const least = (lastPage + 1 + Math.ceil(pages)) * pageBytes;
    if (least > this.#fileBytes) this.#fileBytes = growTo(this.#descriptor, least);
    this.#changes = allChanges;
    this.#bytes = allBytes;
  }

  #readState(): State {
    const text = this.#root.get(STATE_KEY)?.toString();
    if (text === undefined) throw codedError("FOREIGN", "it has no entry of Holdfast");
    const state = parsed(text);
    const { format, versions, boot, offsetMs, lastMs, lastMonotonicMs } = state;
    if (Number.isInteger(format) && format !== FORMAT) throw codedError("OTHER_FORMAT", `format ${format}`);
    const numbers = [format, versions, offsetMs, lastMs, lastMonotonicMs];
    if (typeof boot !== "string" || !numbers.every(Number.isFinite)) {
      throw codedError("FOREIGN", "its entry of Holdfast cannot be read");
    }
    return state as State;
  }

  #writeState(): void {
    const lastMonotonicMs = readMonotonicMs();
    this.#writeStateOf({ ...this.#state, lastMs: timeOf(this.#state, lastMonotonicMs), lastMonotonicMs });
  }

  #writeStateOf(state: State): void {
    this.#root.putSync(STATE_KEY, Buffer.from(JSON.stringify(state)));
  }
}

function parsed(text: string): Partial<State> {
  try {
    return Object(JSON.parse(text)) as Partial<State>;
  } catch {
    return {};
  }
}
