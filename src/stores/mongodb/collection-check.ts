/** Whether locks can be kept in a collection that somebody has made. */
import { HoldfastError } from "../../store/index.ts";
import type { Document, Records } from "./database.ts";
import { mapError, serverCode } from "./errors.ts";
import { collectionCommand, indexesCommand } from "./statements.ts";

/**
 * Refuses a collection that forgets records by itself, takes keys for equal that are not, or refuses records because of others. What the
 * user may not look at, or the server does not tell, is not checked.
 */
export async function checkCollection(records: Records): Promise<void> {
  const [collections, indexes] = await Promise.all([
    answerIfAny(records, collectionCommand(records)),
    answerIfAny(records, indexesCommand(records)),
  ]);
  const { options = {} } = collections.find(({ name }) => name === records.name) ?? {};
  const fault = faultOf(options as Document, indexes);
  if (fault === undefined) return;
  throw new HoldfastError("STORE_FAILURE", `"${records.namespace}" ${fault}. Choose another collection.`);
}

/** What is wrong with a collection, if anything is, by what the server tells of it. */
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

/** Not allowed, there is no such collection yet, and there is no such command. */
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
