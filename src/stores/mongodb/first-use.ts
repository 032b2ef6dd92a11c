/** What is found out about the server before the store is used: once, so that a mistake is told instead of met later. */
import { type Durability, HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import { checkCollection } from "./collection-check.ts";
import type { Document, Records } from "./database.ts";
import { mapError, mapErrorOf, notPrimary, serverCode } from "./errors.ts";
import {
  deleteCommand,
  findQuery,
  indexCommand,
  markCommand,
  refusals,
  tooLateCommand,
} from "./statements.ts";
import { refusedBy } from "./update-reply.ts";

export interface FirstUseOptions {
  readonly durability: Durability;
  readonly createIndex: boolean;
  readonly timeoutMs: number;
}

/** What the server said about itself. */
export interface Server {
  /** Whether it is part of a replica set, and so has a stream of its changes. */
  readonly replicated: boolean;
  /** Whether it compares its time in a write. */
  readonly checksTime: boolean;
  /** The command by which it tells its time. */
  readonly hello: "hello" | "isMaster";
}

export class FirstUse {
  readonly #records: Records;
  readonly #options: FirstUseOptions;
  #server: Server | undefined;
  #asking: Promise<Server> | undefined;

  constructor(records: Records, options: FirstUseOptions) {
    this.#records = records;
    this.#options = options;
  }

  /** What is known of the server already. */
  get server(): Server | undefined {
    return this.#server;
  }

  /** Resolves when all is well. What failed is tried again by the next call. */
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

  /** Servers before 4.4.2, and some that only speak like MongoDB, have but the old name. */
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

  /** Whoever may not even look is told before anything is written. */
  #tryToFind(): Promise<unknown> {
    return this.#taking("find", () => this.#records.find(findQuery([""])));
  }

  /** Nobody who asks for a lock would notice that old records stay for ever. */
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

  /** Writes the marker, and makes sure that the server refuses what swaps rely upon being refused. */
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

  /** A server that cannot is no worse a store; it only does not notice a request that was held up for long. */
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

/** What MongoDB 4.2 says of itself. */
const OLDEST_WIRE_VERSION = 8;

/** Checks what a server answers to `hello`. */
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
 * The time that the primary tells in its answer to `hello`, in milliseconds since 1970.
 *
 * No other member is taken for it. The driver lets a client that is bound to one by `directConnection` read there whatever
 * it is, so the store would tell what was true of a lock some time ago.
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
