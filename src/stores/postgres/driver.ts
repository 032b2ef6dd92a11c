/** PostgreSQL as `casStore` sees it: one statement for each request, in a transaction of its own, and no state in a session. */
import type { Clock } from "../../platform/index.ts";
import { HoldfastError } from "../../store/index.ts";
import type { CasDriver, ChangeResult, StoredRecord, SwapBatch, SwapReply } from "../cas/index.ts";
import { type Access, checkUsable, type OpenListener } from "./client.ts";
import { mapError, sqlState } from "./errors.ts";
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
} from "./hello.ts";
import { inOrder } from "./key-order.ts";
import { Listening } from "./listening.ts";
import { migrate } from "./migration.ts";
import { TOO_LATE } from "./routines.ts";
import {
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
import { newVersions } from "./versions.ts";

/** A table, a function or a schema that the server does not know. */
const NOT_THERE: ReadonlySet<string> = new Set(["42P01", "42883", "3F000"]);

export interface DriverOptions {
  readonly access: Access;
  readonly names: TableNames;
  readonly autoMigrate: boolean;
  /** Undefined: there are no pushes. */
  readonly openListener: OpenListener | undefined;
  readonly clock: Clock;
}

export function postgresDriver(options: DriverOptions): CasDriver {
  const { access, autoMigrate, openListener, clock } = options;
  const { client, send } = access;
  let { names } = options;
  const nextVersion = newVersions();
  const notify = (channel: string, payload: string) => send(notifyStatement(channel, payload));
  const listening = openListener && new Listening(openListener, notify, clock, access.timeoutMs);
  if (access.connections !== undefined) access.connections.onSilence = () => listening?.check();
  let checking: Promise<void> | undefined;
  let known: ServerFacts | undefined;

  async function ask<Row>(statement: Statement): Promise<readonly Row[]> {
    checkUsable(client);
    try {
      return (await send(statement)).rows as readonly Row[];
    } catch (error) {
      if (NOT_THERE.has(sqlState(error) ?? "")) await checkNoReplica();
      throw mapError(error);
    }
  }

  /** What is not there was never made, or a pool leads to a replica by now that lags behind the migration. */
  async function checkNoReplica(): Promise<void> {
    const asked = send({ text: writableQuery });
    // Where this fails as well, the first failure says more.
    const [server] = await asked.then(({ rows }) => rows as readonly ServerFacts[]).catch(() => []);
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
    // Its table is there, so its schema is.
    names = inSchema(names, facts.schema as string);
    known = facts;
  }

  async function askFacts(asked: TableNames): Promise<ServerFacts> {
    const facts = only(await ask<ServerFacts>(factsStatement(asked)));
    checkServer(facts);
    // A pool may lead to a replica by now, which does not have yet what was made.
    checkWritable(facts);
    checkSchema(facts, asked, autoMigrate);
    return facts;
  }

  /** Before anything is written. Rights may have been granted since they were asked for. */
  async function checkRights(): Promise<void> {
    if (known?.may_delete !== false) return;
    await prepare();
    checkRemoval(known, names);
  }

  /** Several calls at once check together. What failed is tried again by the next one. */
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

  async function readTime(): Promise<number> {
    return (await look(readStatement(names, []))).nowMs;
  }

  async function swap(batch: SwapBatch): Promise<SwapReply> {
    await checkRights();
    const version = nextVersion();
    const { changes, places } = inOrder(batch.changes);
    try {
      const { reply } = only(await ask<SwapRow>(swapStatement(names, { ...batch, changes }, version)));
      const { now_us: nowUs, untimely: isUntimely, conflicts } = JSON.parse(reply) as SwapReplyText;
      const nowMs = nowUs / 1_000;
      if (isUntimely) return { nowMs, results: untimely(batch) };
      return { nowMs, results: resultsOf(batch, version, conflicts, places) };
    } catch (error) {
      if (sqlState(error) !== TOO_LATE) throw error;
      return { nowMs: await readTime(), results: untimely(batch) };
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

function resultsOf(
  { changes }: SwapBatch,
  version: string,
  conflicts: SwapReplyText["conflicts"] = [],
  places?: readonly number[],
): readonly ChangeResult[] {
  // As many changes, as many of the same answer.
  const swapped: ChangeResult = { state: "swapped", version };
  const results = changes.map(({ text }): ChangeResult => (text === undefined ? same : swapped));
  for (const [index, found, text] of conflicts) {
    const current = found === null || text === null ? undefined : { version: found, text };
    results[places?.[index] ?? index] = { state: "conflict", current };
  }
  return results;
}

function untimely({ changes }: SwapBatch): readonly ChangeResult[] {
  return changes.map(() => ({ state: "untimely" }));
}

const same: ChangeResult = { state: "same" };

/** A client that answers with something else than rows is not what it was taken for. */
function only<Row>(rows: readonly Row[] | undefined): Row {
  const row = rows?.[0];
  if (row !== undefined) return row;
  throw new HoldfastError(
    "STORE_FAILURE",
    "The PostgreSQL client answered without rows. Its query(text, values) must resolve to { rows }, each row an object.",
  );
}
