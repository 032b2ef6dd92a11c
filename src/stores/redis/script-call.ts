/**
 * Script calls: named by digest, sent whole to a server that does not know them, and numbered.
 *
 * The number closes a race: a client that loses count of the replies on a connection returns those of other commands, and would make a
 * holder of a claim that was not granted. The script begins its reply with the number of the call.
 *
 * A script selects the database of the client's options first, because an application may change the database of a connection with SELECT.
 */
import { createHash } from "node:crypto";
import { StoreUnavailableError } from "../../store/index.ts";
import type { Connection } from "./client.ts";
import { mapError, replyCode } from "./errors.ts";

let calls = 0;

/** A number that no other call of this process has. */
export function nextCall(): string {
  return String(++calls);
}

/** The reply to a call, which begins with its number. */
export function replyTo(
  number: string,
  reply: unknown,
  connection: Connection,
  key: string,
): readonly unknown[] {
  if (Array.isArray(reply) && String(reply[0]) === number) return reply as readonly unknown[];
  if (String(reply) === "QUEUED") {
    throw new StoreUnavailableError(
      "The Redis client is inside a MULTI of the application, so the server only queued this call. Give the store a client of its own: redisStore(client.duplicate()).",
    );
  }
  // The count stays wrong for as long as the connection lasts.
  connection.startOver(key);
  throw new StoreUnavailableError(
    "The Redis client returned the reply to another command. The result of this command is unknown. Update the client, or report the defect.",
  );
}

export class Script {
  readonly #lua: string;
  /** Text and digest, by the database that the script selects. */
  readonly #forms = new Map<number | undefined, readonly [text: string, sha: string]>();

  constructor(lua: string) {
    this.#lua = lua;
  }

  /** Calls the script with one key, and returns its reply, which begins with `number`. `number` must be one of `args`. */
  async run(
    connection: Connection,
    key: string,
    number: string,
    args: readonly string[],
    releases = false,
  ): Promise<readonly unknown[]> {
    const [text, sha] = this.#formFor(connection.selects ? connection.database : undefined);
    const words = ["1", key, ...args];
    try {
      const reply = await connection.send(key, "evalsha", [sha, ...words], releases).catch((error) => {
        if (replyCode(error) !== "NOSCRIPT") throw error;
        return connection.send(key, "eval", [text, ...words], releases);
      });
      return replyTo(number, reply, connection, key);
    } catch (error) {
      throw mapError(error);
    }
  }

  #formFor(database: number | undefined): readonly [text: string, sha: string] {
    const known = this.#forms.get(database);
    if (known !== undefined) return known;
    const text = database === undefined ? this.#lua : `redis.call('SELECT', '${database}')\n${this.#lua}`;
    const form = [text, createHash("sha1").update(text).digest("hex")] as const;
    this.#forms.set(database, form);
    return form;
  }
}
