/** Reads what the server says of a batch of updates. */
import { StoreUnavailableError } from "../../store/index.ts";
import type { Document } from "./database.ts";
import { mapError } from "./errors.ts";
import type { Statement } from "./statements.ts";

/** The statements that failed, by their place in the batch, with the code of the error. */
export function refusedBy(reply: Document): ReadonlyMap<number, number> {
  const errors = (reply["writeErrors"] ?? []) as readonly { readonly index: number; readonly code: number }[];
  return new Map(errors.map(({ index, code }) => [index, code]));
}

/**
 * The same, where every statement must either have changed one document or have failed. Otherwise it is not known which
 * of them were made.
 */
export function refusedOf(reply: Document, statements: readonly Statement[]): ReadonlyMap<number, number> {
  // Some versions of the driver throw this, others leave it in the reply.
  const unconfirmed = reply["writeConcernError"];
  if (unconfirmed !== undefined) {
    const error = new Error("No majority confirmed the write.", { cause: unconfirmed });
    error.name = "MongoWriteConcernError";
    throw mapError(error);
  }
  const refused = new Map(refusedBy(reply));
  const made = Number(reply["n"]);
  if (made + refused.size !== statements.length) {
    throw new StoreUnavailableError(
      `MongoDB reported ${made} changes as made and ${refused.size} as refused, out of ${statements.length}. Which it made is unknown.`,
    );
  }
  for (const index of insertedBy(reply)) {
    // It became the marker, which somebody had removed: a server that only speaks like MongoDB lets that happen.
    if (statements[index]?.change.expected !== undefined) refused.set(index, DUPLICATE_KEY);
  }
  return refused;
}

const DUPLICATE_KEY = 11_000;

/** The statements that inserted a document, by their place in the batch. */
function insertedBy(reply: Document): readonly number[] {
  const inserted = (reply["upserted"] ?? []) as readonly { readonly index: number }[];
  return inserted.map(({ index }) => index);
}
