/** MySQL as `casStore` sees it: one statement for each request, and no state in a session. */
import { randomBytes } from "node:crypto";
import { type Durability, HoldfastError } from "../../store/index.ts";
import type { CasDriver, ChangeResult, StoredRecord, SwapBatch, SwapReply } from "../cas/index.ts";
import type { Cell, Row, Send } from "./client.ts";
import { serverErrno } from "./errors.ts";
import { checkFirstUse, checkRemoval } from "./readiness.ts";
import { listStatement, maxSwapBytes, readStatement, swapStatement, sweepStatement } from "./statements.ts";
import type { TableNames } from "./table.ts";

export interface DriverOptions {
  readonly send: Send;
  readonly names: TableNames;
  readonly autoMigrate: boolean;
  readonly durability: Durability;
  readonly maxRecordBytes: number;
}

const BATCH_CHANGES = 256;
/** In characters of up to three bytes. One more record may follow. */
const BATCH_BYTES = 262_144;

const DEADLOCK = 1213;
/** How often a batch is sent that the server rolled back because of a deadlock. */
const ATTEMPTS = 3;

export function mysqlDriver(options: DriverOptions): CasDriver {
  const { send, durability, maxRecordBytes } = options;
  let { names } = options;
  const maxStatementBytes = maxSwapBytes(3 * BATCH_BYTES + maxRecordBytes, BATCH_CHANGES);
  let checking: Promise<void> | undefined;
  let mayRemove: Promise<void> | undefined;

  /** Calls at the same time share one check. After a failure, the next call checks again. */
  function prepare(): Promise<void> {
    checking ??= check().finally(() => {
      checking = undefined;
    });
    return checking;
  }

  async function check(): Promise<void> {
    names = await checkFirstUse({ ...options, maxStatementBytes });
  }

  /** Before the first write: `inspect` and `list` do not need these rights. */
  async function checkRights(): Promise<void> {
    mayRemove ??= checkRemoval(send, names);
    try {
      await mayRemove;
    } catch (error) {
      mayRemove = undefined;
      throw error;
    }
  }

  async function swap(batch: SwapBatch): Promise<SwapReply> {
    await checkRights();
    // A batch has each key only once, so its changes share a version.
    const version = randomBytes(16).toString("hex");
    const sql = swapStatement(names, batch, version);
    const [summary, found = []] = await sendAgain(() => send(sql), ATTEMPTS);
    const [isAllWritten, nowUs] = (summary?.[0] ?? []) as Row;
    const isWritten = Number(isAllWritten) === 1;
    const results = isWritten ? allSwapped(batch, version) : resultsOf(batch, version, found);
    return { nowMs: milliseconds(nowUs), results };
  }

  async function rowsOf(sql: string): Promise<{ nowMs: number; found: readonly Row[] }> {
    const [rows = []] = await send(sql);
    const [nowUs, autocommit] = rows[0] as Row;
    if (Number(autocommit) !== 1) throw autocommitOff();
    return { nowMs: milliseconds(nowUs), found: rows.filter((row) => row[2] !== null) };
  }

  return {
    name: "mysql",
    durability,
    checksTime: true,
    limits: { changes: BATCH_CHANGES, batchBytes: BATCH_BYTES, recordBytes: maxRecordBytes },
    prepare,
    swap,
    async read(keys) {
      const { nowMs, found } = await rowsOf(readStatement(names, keys));
      const byKey = new Map(found.map((row) => [text(row[2]), stored(row[3], row[4])]));
      return { nowMs, records: keys.map((key) => byKey.get(key)) };
    },
    async list(prefix, after, limit) {
      const { nowMs, found } = await rowsOf(listStatement(names, prefix, after, limit));
      return { nowMs, records: found.map((row) => ({ key: text(row[2]), text: text(row[4]) })) };
    },
    async sweep(limit) {
      const [rows = []] = await send(sweepStatement(names, limit));
      return Number(rows[0]?.[0]);
    },
  };
}

/** The server rolls back the whole batch in a deadlock, so it can be sent again. */
async function sendAgain<R>(send: () => Promise<R>, attempts: number): Promise<R> {
  try {
    return await send();
  } catch (error) {
    if (attempts === 1 || serverErrno(error) !== DEADLOCK) throw error;
    return sendAgain(send, attempts - 1);
  }
}

function allSwapped({ changes }: SwapBatch, version: string): readonly ChangeResult[] {
  const swapped: ChangeResult = { state: "swapped", version };
  return changes.map(() => swapped);
}

/** From the current records: only this batch writes its version, and versions are never used again. */
function resultsOf({ changes }: SwapBatch, version: string, found: readonly Row[]): readonly ChangeResult[] {
  const byKey = new Map(found.map((row) => [text(row[0]), stored(row[1], row[2])]));
  return changes.map((change): ChangeResult => {
    const current = byKey.get(change.key);
    if (current?.version === version) return { state: "swapped", version };
    if (current?.version !== change.expected) return { state: "conflict", current };
    return { state: change.text === undefined ? "same" : "untimely" };
  });
}

function stored(version: Cell | undefined, record: Cell | undefined): StoredRecord | undefined {
  if (version === null || version === undefined) return undefined;
  return { version: String(version).toLowerCase(), text: text(record) };
}

function text(cell: Cell | undefined): string {
  return Buffer.isBuffer(cell) ? cell.toString("utf8") : String(cell);
}

function milliseconds(us: Cell | undefined): number {
  return Number(us) / 1_000;
}

function autocommitOff(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The connection has autocommit off, so it would keep reading an old snapshot. Give the store a pool, or a connection of its own, with autocommit on.",
  );
}
