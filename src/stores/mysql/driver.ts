/** MySQL as `casStore` sees it: one statement for each request, and no state in a session. */
import { randomBytes } from "node:crypto";
import { type Durability, HoldfastError } from "../../core/index.ts";
import type { CasDriver, Change, ChangeResult, StoredRecord, SwapBatch, SwapReply } from "../cas/index.ts";
import type { Cell, Row, Send } from "./client.ts";
import { serverErrno } from "./errors.ts";
import { checkFirstUse } from "./first-use.ts";
import { listStatement, readStatement, swapStatement, sweepStatement } from "./statements.ts";
import type { TableNames } from "./table.ts";

export interface DriverOptions {
  readonly send: Send;
  readonly names: TableNames;
  readonly autoMigrate: boolean;
  readonly durability: Durability;
  readonly maxRecordBytes: number;
}

/** Bytes of records in a batch. */
const BATCH_BYTES = 262_144;
/** A record as a text in JSON, in hexadecimal digits: twice the digits, and most of the quotation marks are escaped. */
const STATEMENT_BYTES_PER_RECORD_BYTE = 4;
/** The keys and everything else of the most changes in one batch. */
const OTHER_STATEMENT_BYTES = 524_288;

const DEADLOCK = 1213;
/** How often a batch is sent that the server has undone for the sake of others. */
const ATTEMPTS = 3;

export function mysqlDriver(options: DriverOptions): CasDriver {
  const { send, names, durability, maxRecordBytes } = options;
  const recordBytes = Math.max(maxRecordBytes, BATCH_BYTES) + maxRecordBytes;
  const maxStatementBytes = STATEMENT_BYTES_PER_RECORD_BYTE * recordBytes + OTHER_STATEMENT_BYTES;
  let checking: Promise<void> | undefined;

  /** Several calls at once check together. What failed is tried again by the next one. */
  function prepare(): Promise<void> {
    checking ??= checkFirstUse({ ...options, maxStatementBytes }).finally(() => {
      checking = undefined;
    });
    return checking;
  }

  async function swap(batch: SwapBatch): Promise<SwapReply> {
    // One for all: every key is in a batch only once.
    const version = randomBytes(16).toString("hex");
    const order = inOrder(batch.changes);
    const changes = order.map((index) => batch.changes[index] as Change);
    const [summary, conflicts] = await sendAgain(
      () => send(swapStatement(names, { ...batch, changes }, version)),
      ATTEMPTS,
    );
    const [letters, nowUs] = (summary?.[0] ?? []) as Row;
    const results = resultsOf(String(letters), conflicts ?? [], version);
    const inTheOrderAsked: ChangeResult[] = [];
    for (const [place, index] of order.entries()) {
      const result = results[place];
      if (result !== undefined) inTheOrderAsked[index] = result;
    }
    return { nowMs: milliseconds(nowUs), results: inTheOrderAsked };
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
    limits: { batchBytes: BATCH_BYTES, recordBytes: maxRecordBytes },
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

/**
 * The places of the changes in the order of their keys' bytes. Everybody locks rows in this order, so nobody waits for
 * somebody who waits for them.
 */
function inOrder(changes: readonly Change[]): readonly number[] {
  if (changes.length === 1) return [0];
  const keys = changes.map(({ key }) => Buffer.from(key));
  return [...keys.keys()].sort((a, b) => Buffer.compare(keys[a] as Buffer, keys[b] as Buffer));
}

/** A deadlock was undone as a whole, so it can simply be sent again. */
async function sendAgain<R>(send: () => Promise<R>, attempts: number): Promise<R> {
  try {
    return await send();
  } catch (error) {
    if (attempts === 1 || serverErrno(error) !== DEADLOCK) throw error;
    return sendAgain(send, attempts - 1);
  }
}

function resultsOf(letters: string, conflicts: readonly Row[], version: string): readonly ChangeResult[] {
  const current = new Map<number, StoredRecord | undefined>();
  for (const [place, found, record] of conflicts) current.set(Number(place), stored(found, record));
  return [...letters].map((letter, index): ChangeResult => {
    switch (letter) {
      case "w":
        return { state: "swapped", version };
      case "s":
        return { state: "same" };
      case "u":
        return { state: "untimely" };
      default:
        return { state: "conflict", current: current.get(index + 1) };
    }
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
    "The connection has autocommit off, so it would go on seeing what is long past. Give the store a pool, or a connection of its own, with autocommit on.",
  );
}
