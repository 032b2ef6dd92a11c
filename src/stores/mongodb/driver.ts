/** MongoDB as `casStore` sees it. */
import { randomUUID } from "node:crypto";
import { type Durability, HoldfastError } from "../../store/index.ts";
import type {
  CasDriver,
  Change,
  ChangeResult,
  ListReply,
  ReadReply,
  StoredRecord,
  SwapBatch,
  SwapReply,
} from "../cas/index.ts";
import type { Document, Records } from "./client.ts";
import { mapError } from "./errors.ts";
import { Readiness, type Server, timeOf } from "./readiness.ts";
import {
  deleteCommand,
  findQuery,
  listQuery,
  oldQuery,
  refusals,
  refusedOf,
  type Statement,
  updateCommand,
} from "./statements.ts";
import { WakeStream } from "./wake.ts";

export interface MongodbDriverOptions {
  readonly durability: Durability;
  readonly createIndex: boolean;
  readonly timeoutMs: number;
}

export class MongodbDriver implements CasDriver {
  readonly name = "mongodb";
  readonly durability: Durability;
  readonly #records: Records;
  readonly #readiness: Readiness;
  readonly #wakeStream: WakeStream;
  readonly #timeoutMs: number;
  /** Both together make a unique version. */
  readonly #maker = randomUUID();
  #made = 0;

  constructor(records: Records, options: MongodbDriverOptions) {
    this.#records = records;
    this.durability = options.durability;
    this.#timeoutMs = options.timeoutMs;
    this.#readiness = new Readiness(records, options);
    this.#wakeStream = new WakeStream(records);
  }

  /** False until the first request has checked the server. */
  get checksTime(): boolean {
    return this.#readiness.server?.checksTime ?? false;
  }

  async read(keys: readonly string[]): Promise<ReadReply> {
    return this.#ask(async (server) => {
      const [nowMs, found] = await Promise.all([this.#time(server), this.#find(keys)]);
      const isAlone = keys.length === 1;
      const records = keys.map((key) => {
        const document = found.get(key);
        // Another program's document must not fail the other keys. A swap of its key reports it.
        return isAlone || isRecord(document) ? readDocument(document, key) : undefined;
      });
      return { nowMs, records };
    });
  }

  async swap(batch: SwapBatch): Promise<SwapReply> {
    return this.#ask(async (server) => {
      const statements = batch.changes
        .filter((change) => !isAboutNothing(change))
        .map((change) => ({ change, version: `${this.#maker}.${++this.#made}` }));
      const [nowMs, refused] = await Promise.all([
        this.#time(server),
        this.#update(statements, batch, server),
      ]);
      const made = new Map<Change, ChangeResult>();
      for (const [index, { change, version }] of statements.entries()) {
        const result = resultOf(change, version, refused.get(index));
        if (result !== undefined) made.set(change, result);
      }
      const unclear = batch.changes.filter((change) => !made.has(change));
      const found = await this.#find(unclear.map(({ key }) => key));
      const results = batch.changes.map(
        (change) => made.get(change) ?? compare(change, found.get(change.key)),
      );
      return { nowMs, results };
    });
  }

  async list(prefix: string, after: string | undefined, limit: number): Promise<ListReply> {
    return this.#ask(async (server) => {
      const [nowMs, found] = await Promise.all([
        this.#time(server),
        this.#records.find(listQuery(prefix, after, limit)),
      ]);
      const records = found.map((document) => {
        const key = String(document["_id"]);
        return { key, text: readDocument(document, key)?.text ?? "" };
      });
      return { nowMs, records };
    });
  }

  async sweep(limit: number): Promise<number> {
    return this.#ask(async (server) => {
      const nowMs = await this.#time(server);
      const old = await this.#records.find(oldQuery(nowMs, limit));
      if (old.length === 0) return 0;
      const ids = old.map((document) => document["_id"]);
      const reply = await this.#records.command(deleteCommand(this.#records, ids, nowMs, this.#timeoutMs));
      return Number(reply["n"]);
    });
  }

  async listen(owner: string, onWake: (key: string, id: string) => void): Promise<() => void> {
    return this.#ask((server) => {
      if (server.replicated) return this.#wakeStream.listen(owner, onWake);
      throw new HoldfastError(
        "UNSUPPORTED",
        "A server that is not part of a replica set has no change stream.",
      );
    });
  }

  async close(): Promise<void> {
    await this.#wakeStream.close();
  }

  async #ask<R>(request: (server: Server) => Promise<R>): Promise<R> {
    try {
      return await request(this.#readiness.server ?? (await this.#readiness.ask()));
    } catch (error) {
      throw mapError(error);
    }
  }

  /** Sent beside every request, on another connection, because no other reply has the server's time. */
  async #time({ hello }: Server): Promise<number> {
    return timeOf(await this.#records.command({ [hello]: 1 }));
  }

  async #update(
    statements: readonly Statement[],
    batch: SwapBatch,
    server: Server,
  ): Promise<ReadonlyMap<number, number>> {
    if (statements.length === 0) return new Map();
    const { checksTime, replicated: streams } = server;
    const terms = { checksTime, streams, timeoutMs: this.#timeoutMs };
    const reply = await this.#records.command(updateCommand(this.#records, statements, batch, terms));
    return refusedOf(reply, statements);
  }

  async #find(keys: readonly string[]): Promise<ReadonlyMap<unknown, Document>> {
    if (keys.length === 0) return new Map();
    const found = await this.#records.find(findQuery(keys));
    return new Map(found.map((document) => [document["_id"], document]));
  }
}

/** Whether there must be no record, and none is written. A read answers that. */
function isAboutNothing({ expected, text }: Change): boolean {
  return expected === undefined && text === undefined;
}

/** Undefined if the change was refused: a read finds the reason. */
function resultOf(change: Change, version: string, code: number | undefined): ChangeResult | undefined {
  if (code === undefined)
    return change.text === undefined ? { state: "same" } : { state: "swapped", version };
  if (refusals.has(code)) return undefined;
  return { state: "failed", error: mapError(Object.assign(new Error("The change was refused."), { code })) };
}

/** The result of a change that was not made, from the current document. Versions are never used again. */
function compare(change: Change, document: Document | undefined): ChangeResult {
  try {
    const current = readDocument(document, change.key);
    if (current?.version !== change.expected) return { state: "conflict", current };
    // The version is right, so the time was not.
    return isAboutNothing(change) ? { state: "same" } : { state: "untimely" };
  } catch (error) {
    return { state: "failed", error };
  }
}

function readDocument(document: Document | undefined, key: string): StoredRecord | undefined {
  if (document === undefined || isRecord(document)) return document;
  throw new HoldfastError(
    "STORE_FAILURE",
    `Another program wrote the document of "${key}". Give the store a collection of its own.`,
    { key },
  );
}

function isRecord(document: Document | undefined): document is Document & StoredRecord {
  return typeof document?.["version"] === "string" && typeof document["text"] === "string";
}
