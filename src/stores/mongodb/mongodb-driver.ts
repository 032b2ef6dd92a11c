/** Swaps, reads and lists records: what `casStore` asks of MongoDB. */
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
import type { Document, Records } from "./database.ts";
import { mapError } from "./errors.ts";
import { FirstUse, type Server, timeOf } from "./first-use.ts";
import {
  deleteCommand,
  findQuery,
  listQuery,
  oldQuery,
  refusals,
  type Statement,
  updateCommand,
} from "./statements.ts";
import { refusedOf } from "./update-reply.ts";
import { WakeStream } from "./wake-stream.ts";

export interface MongodbDriverOptions {
  readonly durability: Durability;
  readonly createIndex: boolean;
  /** For how long the server waits for a majority. */
  readonly timeoutMs: number;
}

export class MongodbDriver implements CasDriver {
  readonly name = "mongodb";
  readonly durability: Durability;
  readonly #records: Records;
  readonly #firstUse: FirstUse;
  readonly #wakeStream: WakeStream;
  readonly #timeoutMs: number;
  /** Together they make a version that nobody has ever used. */
  readonly #maker = randomUUID();
  #made = 0;

  constructor(records: Records, options: MongodbDriverOptions) {
    this.#records = records;
    this.durability = options.durability;
    this.#timeoutMs = options.timeoutMs;
    this.#firstUse = new FirstUse(records, options);
    this.#wakeStream = new WakeStream(records);
  }

  /** False until the server has been asked what it can do. */
  get checksTime(): boolean {
    return this.#firstUse.server?.checksTime ?? false;
  }

  async read(keys: readonly string[]): Promise<ReadReply> {
    return this.#ask(async (server) => {
      const [nowMs, found] = await Promise.all([this.#time(server), this.#find(keys)]);
      const isAlone = keys.length === 1;
      const records = keys.map((key) => {
        const document = found.get(key);
        // One that is somebody else's must not fail the others. A swap of its key will say so.
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
      return await request(this.#firstUse.server ?? (await this.#firstUse.ask()));
    } catch (error) {
      throw mapError(error);
    }
  }

  /** Asked beside every request, on another connection: no reply but this one tells the server's time. */
  async #time({ hello }: Server): Promise<number> {
    return timeOf(await this.#records.command({ [hello]: 1 }));
  }

  /** The statements that were not made, with the code of the error. */
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

/** Whether there must be no record, and there is none to be written: a look is all that takes. */
function isAboutNothing({ expected, text }: Change): boolean {
  return expected === undefined && text === undefined;
}

/** Undefined where the change was refused, and a look has to tell why. */
function resultOf(change: Change, version: string, code: number | undefined): ChangeResult | undefined {
  if (code === undefined)
    return change.text === undefined ? { state: "same" } : { state: "swapped", version };
  if (refusals.has(code)) return undefined;
  return { state: "failed", error: mapError(Object.assign(new Error("The change was refused."), { code })) };
}

/** A change that was not made, beside what the key has. A version is used once, so none that was expected comes back. */
function compare(change: Change, document: Document | undefined): ChangeResult {
  try {
    const current = readDocument(document, change.key);
    if (current?.version !== change.expected) return { state: "conflict", current };
    // It was refused nevertheless, so it was not the time for it.
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
