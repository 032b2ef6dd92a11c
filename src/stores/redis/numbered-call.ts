/**
 * A client that loses count of the replies on a connection hands out those of other commands. It would make a holder of a
 * claim that was not granted. So each call has a number, and the script begins its reply with it.
 */
import { StoreUnavailableError } from "../../store/index.ts";
import type { Connection } from "./connection.ts";

let calls = 0;

/** Counts the calls of this whole process, so that no reply can be taken for that to a call of another store. */
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
  throw wrongReply(reply, connection, key);
}

/** The same for a reply in lines, of which the first is what the script was to repeat. */
export function textReplyTo(stamp: string, reply: unknown, connection: Connection, key: string): string {
  const text = String(reply);
  if (text.startsWith(stamp) && text[stamp.length] === "\n") return text;
  throw wrongReply(text, connection, key);
}

function wrongReply(reply: unknown, connection: Connection, key: string): StoreUnavailableError {
  if (String(reply) === "QUEUED") {
    return new StoreUnavailableError(
      "The Redis client is inside a MULTI of the application, so the server only queued this call. Give the store a client of its own: redisStore(client.duplicate()).",
    );
  }
  // Waiting does not help: the count stays wrong for as long as the connection lasts.
  connection.startOver(key);
  return new StoreUnavailableError(
    "The Redis client returned the reply to another command. The result of this command is unknown. Update the client, or report the defect.",
  );
}
