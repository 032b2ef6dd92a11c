/** PostgreSQL as `casStore` sees it: one statement for each request, in a transaction of its own, and no state in a session. */
import { randomBytes } from "node:crypto";
import type { Clock } from "../../platform/index.ts";
import { HoldfastError } from "../../store/index.ts";
import type { CasDriver, ChangeResult, StoredRecord, SwapBatch, SwapReply } from "../cas/index.ts";
import { checkUsable, type OpenListener, type PostgresClient, type Send } from "./client.ts";
import { mapError, sqlState } from "./errors.ts";
import { migrate } from "./migration.ts";
import { TOO_LATE } from "./procedures.ts";
import {
  checkRemoval,
  checkSchema,
  checkServer,
  checkTable,
  checkWritable,
  factsStatement,
  isMigrated,
  type ServerFacts,
  writableQuery,
} from "./readiness.ts";
import {
  byBytes,
  type ListRow,
  listStatement,
  notifyStatement,
  type ReadRow,
  readStatement,
  type Statement,
  type SwapReplyText,
  type SwapRow,
  type SweepRow,
  swapStatement,
  sweepStatement,
} from "./statements.ts";
import { inSchema, type TableNames } from "./table.ts";
import { Listening } from "./wake.ts";

/** A table, a function or a schema that the server does not know. */
const NOT_THERE: ReadonlySet<string> = new Set(["42P01", "42883", "3F000"]);

export interface DriverOptions {
  readonly client: PostgresClient;
  readonly send: Send;
  readonly names: TableNames;
  readonly autoMigrate: boolean;
  /** Undefined: waiters are not notified. */
  readonly openListener: OpenListener | undefined;
  readonly clock: Clock;
  readonly timeoutMs: number;
}

export function postgresDriver(options: DriverOptions): CasDriver {
  const { client, send, autoMigrate, openListener, clock, timeoutMs } = options;
  let { names } = options;
  const nextVersion = newVersions();
  const notify = (channel: string, payload: string) => send(notifyStatement(channel, payload));
  const listening = openListener && new Listening(openListener, notify, clock, timeoutMs);
  let checking: Promise<void> | undefined;
  let known: ServerFacts | undefined;

  async function ask<Row>(statement: Statement): Promise<readonly Row[]> {
    checkUsable(client);
    try {
      return (await send(statement)).rows as readonly Row[];
    } catch (error) {
      const state = sqlState(error);
      // The session that listens may be silent as well.
      if (state === undefined) listening?.check();
      else if (NOT_THERE.has(state)) await checkNoReplica();
      throw mapError(error);
    }
  }

  /** A missing table was never created, or the pool leads to a replica that has not received the migration yet. */
  async function checkNoReplica(): Promise<void> {
    // If this fails as well, the first failure says more.
    const { rows } = await send({ text: writableQuery }).catch(() => ({ rows: [] }));
    const [server] = rows as readonly ServerFacts[];
    if (server !== undefined) checkWritable(server);
  }

  async function check(): Promise<void> {
    let facts = await askFacts(names);
    if (autoMigrate && !isMigrated(facts) && facts.schema !== null) {
      names = inSchema(names, facts.schema);
      await migrate(send, names).catch((error) => {
        throw mapError(error);
      });
      facts = await askFacts(names);
    }
    checkTable(facts, names);
    // The table exists, so it has a schema.
    names = inSchema(names, facts.schema as string);
    known = facts;
  }

  async function askFacts(asked: TableNames): Promise<ServerFacts> {
    const facts = only(await ask<ServerFacts>(factsStatement(asked)));
    checkServer(facts);
    checkWritable(facts);
    checkSchema(facts, asked, autoMigrate);
    return facts;
  }

  /** Before the first write. Rights may have been granted since the last look. */
  async function checkRights(): Promise<void> {
    if (known?.may_delete !== false) return;
    await prepare();
    checkRemoval(known, names);
  }

  /** Calls at the same time share one check. After a failure, the next call checks again. */
  function prepare(): Promise<void> {
    checking ??= check().finally(() => {
      checking = undefined;
    });
    return checking;
  }

  async function look<Row extends ReadRow | ListRow>(statement: Statement) {
    const rows = await ask<Row>(statement);
    return { nowMs: Number(only(rows).now_us) / 1_000, rows };
  }

  async function swap(batch: SwapBatch): Promise<SwapReply> {
    await checkRights();
    const version = nextVersion();
    // Batches usually come in this order already.
    const places = batch.changes.map((change, place) => ({ change, place }));
    places.sort((a, b) => byBytes(a.change.key, b.change.key));
    const changes = places.map(({ change }) => change);
    try {
      const { reply } = only(await ask<SwapRow>(swapStatement(names, { ...batch, changes }, version)));
      const { now_us: nowUs, untimely: isUntimely, conflicts } = JSON.parse(reply) as SwapReplyText;
      if (isUntimely) return { nowMs: nowUs / 1_000, results: untimely(batch) };
      const results = batch.changes.map(
        ({ text }): ChangeResult => (text === undefined ? { state: "same" } : { state: "swapped", version }),
      );
      for (const [index, found, text] of conflicts ?? []) {
        const current = found === null || text === null ? undefined : { version: found, text };
        results[places[index]?.place ?? index] = { state: "conflict", current };
      }
      return { nowMs: nowUs / 1_000, results };
    } catch (error) {
      if (sqlState(error) !== TOO_LATE) throw error;
      const { nowMs } = await look(readStatement(names, []));
      return { nowMs, results: untimely(batch) };
    }
  }

  return {
    name: "postgres",
    durability: "local",
    checksTime: true,
    prepare,
    swap,
    async read(keys) {
      const { nowMs, rows } = await look<ReadRow>(readStatement(names, keys));
      const found = new Map<string, StoredRecord>();
      for (const { key, version, record } of rows)
        if (key !== null) found.set(key, { version, text: record });
      return { nowMs, records: keys.map((key) => found.get(key)) };
    },
    async list(prefix, after, limit) {
      const { nowMs, rows } = await look<ListRow>(listStatement(names, prefix, after, limit));
      const records = rows.flatMap(({ key, record }) => (key === null ? [] : [{ key, text: record }]));
      return { nowMs, records };
    },
    async sweep(limit) {
      return Number(only(await ask<SweepRow>(sweepStatement(names, limit))).removed);
    },
    ...(listening === undefined ? {} : { listen: (owner, onWake) => listening.listen(owner, onWake) }),
    async close() {
      listening?.close();
    },
  };
}

/**
 * Eighty random bits of this store and a count, in the form of a uuid. A sequence of the database would repeat versions after a failover
 * to a replica that lacks the last of them, and a process with a record from before would overwrite later changes.
 */
function newVersions(): () => string {
  const own = randomBytes(10).toString("hex");
  const beginning = `${own.slice(0, 8)}-${own.slice(8, 12)}-${own.slice(12, 16)}-${own.slice(16)}-`;
  let count = 0;
  return () => beginning + (++count).toString(16).padStart(12, "0");
}

function untimely({ changes }: SwapBatch): readonly ChangeResult[] {
  return changes.map(() => ({ state: "untimely" }));
}

function only<Row>(rows: readonly Row[] | undefined): Row {
  const row = rows?.[0];
  if (row !== undefined) return row;
  throw new HoldfastError(
    "STORE_FAILURE",
    "The PostgreSQL client answered without rows. Its query(text, values) must resolve to { rows }, each row an object.",
  );
}
