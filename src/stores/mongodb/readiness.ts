/** Checks the server, the rights and the collection at first use. */
import { type Durability, HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import type { Document, Records } from "./client.ts";
import { mapError, mapErrorOf, notPrimary, serverCode } from "./errors.ts";
import {
  collectionCommand,
  deleteCommand,
  findQuery,
  indexCommand,
  indexesCommand,
  markCommand,
  refusals,
  refusedBy,
  tooLateCommand,
} from "./statements.ts";

export interface ReadinessOptions {
  readonly durability: Durability;
  readonly createIndex: boolean;
  readonly timeoutMs: number;
}

export interface Server {
  /** Only a replica set has change streams. */
  readonly replicated: boolean;
  /** Whether it can compare its time in a write. */
  readonly checksTime: boolean;
  /** The command whose reply has the time. */
  readonly hello: "hello" | "isMaster";
}

export class Readiness {
  readonly #records: Records;
  readonly #options: ReadinessOptions;
  #server: Server | undefined;
  #asking: Promise<Server> | undefined;

  constructor(records: Records, options: ReadinessOptions) {
    this.#records = records;
    this.#options = options;
  }

  get server(): Server | undefined {
    return this.#server;
  }

  /** Calls at the same time share one check. After a failure, the next call checks again. */
  ask(): Promise<Server> {
    this.#asking ??= this.#ask().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #ask(): Promise<Server> {
    const { hello, reply } = await this.#sayHello();
    const { replicated } = checkServer(reply, this.#options.durability);
    await Promise.all([this.#tryToFind(), this.#tryToRemove()]);
    await checkCollection(this.#records);
    if (this.#options.createIndex) {
      await this.#taking("createIndex", () => this.#records.command(indexCommand(this.#records)));
    }
    await this.#taking("insert or update", () => this.#mark());
    this.#server = { hello, replicated, checksTime: await this.#canCheckTime() };
    return this.#server;
  }

  /** Servers before 4.4.2, and some that resemble MongoDB, know only the old name. */
  async #sayHello(): Promise<{ hello: Server["hello"]; reply: Document }> {
    try {
      try {
        return { hello: "hello", reply: await this.#records.command({ hello: 1 }) };
      } catch (error) {
        if (serverCode(error) !== COMMAND_NOT_FOUND) throw error;
        return { hello: "isMaster", reply: await this.#records.command({ isMaster: 1 }) };
      }
    } catch (error) {
      throw mapError(error);
    }
  }

  #tryToFind(): Promise<unknown> {
    return this.#taking("find", () => this.#records.find(findQuery([""])));
  }

  /** Without this check, old records would stay without a notice. */
  #tryToRemove(): Promise<unknown> {
    const nothing = deleteCommand(this.#records, [], 0, this.#options.timeoutMs);
    return this.#taking("remove", () => this.#records.command(nothing));
  }

  async #taking<T>(right: string, ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      throw mapErrorOf(`${right} on "${this.#records.namespace}"`, error);
    }
  }

  /** Writes the marker, and checks that the server refuses the insert that swaps need refused. */
  async #mark(): Promise<void> {
    const reply = await this.#records.command(markCommand(this.#records, this.#options.timeoutMs));
    const refused = refusedBy(reply);
    const unexpected = [...refused].find(([index, code]) => index !== 1 || !refusals.has(code));
    if (unexpected !== undefined) throw Object.assign(new Error("refused"), { code: unexpected[1] });
    if (refused.size === 1) return;
    throw new HoldfastError(
      "UNSUPPORTED",
      `The server of "${this.#records.namespace}" inserts a document under another _id than the request has, unlike MongoDB. The store cannot use this server.`,
    );
  }

  /** A server that cannot compare its time makes changes that were held up for long. */
  async #canCheckTime(): Promise<boolean> {
    try {
      const reply = await this.#records.command(tooLateCommand(this.#records));
      return [...refusedBy(reply).values()].some((code) => refusals.has(code));
    } catch (error) {
      const mapped = mapError(error);
      if (mapped.code === "STORE_FAILURE") return false;
      throw mapped;
    }
  }
}

const COMMAND_NOT_FOUND = 59;

/** MongoDB 4.2. */
const OLDEST_WIRE_VERSION = 8;

/** Checks the reply to `hello`. */
export function checkServer(reply: Document, durability: Durability): { readonly replicated: boolean } {
  if (reply["msg"] === "isdbgrid") {
    throw new HoldfastError(
      "UNSUPPORTED",
      "The client is connected to mongos. Each mongos has its own clock, so no common clock can expire locks. Connect to a replica set.",
    );
  }
  if (Number(reply["maxWireVersion"]) < OLDEST_WIRE_VERSION) {
    throw new HoldfastError("UNSUPPORTED", "The server is too old. Upgrade it to MongoDB 4.2 or newer.");
  }
  const replicated = typeof reply["setName"] === "string";
  if (durability === "quorum" && !replicated) {
    throw new HoldfastError(
      "DURABILITY_UNAVAILABLE",
      'The server is not part of a replica set, so it has no majority. Connect to a replica set, or leave out durability: "quorum".',
    );
  }
  timeOf(reply);
  return { replicated };
}

/**
 * The primary's time, from its reply to `hello`. Other members are refused: with `directConnection` the driver reads from any member,
 * whose records may be old.
 */
export function timeOf(reply: Document): number {
  if ((reply["isWritablePrimary"] ?? reply["ismaster"]) === false) {
    throw new StoreUnavailableError(`MongoDB is unavailable. ${notPrimary}`);
  }
  const time = reply["localTime"];
  if (time instanceof Date && !Number.isNaN(time.getTime())) return time.getTime();
  throw new HoldfastError(
    "UNSUPPORTED",
    "The server does not report its time, unlike MongoDB. Connect to a MongoDB server.",
  );
}

/**
 * Refuses a collection that removes records by itself, compares keys by a collation, or has a unique index. Facts that the user may not
 * see, or the server does not know, are not checked.
 */
async function checkCollection(records: Records): Promise<void> {
  const [collections, indexes] = await Promise.all([
    answerIfAny(records, collectionCommand(records)),
    answerIfAny(records, indexesCommand(records)),
  ]);
  const { options = {} } = collections.find(({ name }) => name === records.name) ?? {};
  const fault = faultOf(options as Document, indexes);
  if (fault === undefined) return;
  throw new HoldfastError("STORE_FAILURE", `"${records.namespace}" ${fault}. Choose another collection.`);
}

/** The reason why a collection cannot hold locks, or undefined. */
export function faultOf(options: Document, indexes: readonly Document[]): string | undefined {
  if (options["capped"] === true) return "is capped, so held locks could vanish";
  const { locale = "simple" } = (options["collation"] ?? {}) as Document;
  if (locale !== "simple") return "has a collation, so different keys could count as equal";
  for (const { name, expireAfterSeconds, unique } of indexes) {
    if (expireAfterSeconds !== undefined)
      return `has the index "${name}" with expireAfterSeconds, so held locks could vanish`;
    if (unique === true && name !== "_id_")
      return `has the index "${name}", which is unique, so it would refuse records`;
  }
  return undefined;
}

/** The user lacks the right, the collection does not exist yet, or the server lacks the command. */
const NO_ANSWER: ReadonlySet<unknown> = new Set([13, 26, 59]);

async function answerIfAny(records: Records, command: Document): Promise<readonly Document[]> {
  try {
    const { cursor } = await records.command(command);
    return (cursor as { firstBatch: readonly Document[] }).firstBatch;
  } catch (error) {
    if (NO_ANSWER.has(serverCode(error))) return [];
    throw mapError(error);
  }
}
