/** Reads what the server says of a batch of updates. */
import { StoreUnavailableError } from "../../core/index.ts";
import type { Document } from "./database.ts";
import { mapError } from "./errors.ts";

/** The statements that failed, by their place in the batch, with the code of the error. */
export function refusedBy(reply: Document): ReadonlyMap<number, number> {
  const errors = (reply["writeErrors"] ?? []) as readonly { readonly index: number; readonly code: number }[];
  return new Map(errors.map(({ index, code }) => [index, code]));
}

/**
 * The same, where every statement must either have changed one document or have failed. Otherwise it is not known which
 * of them were made.
 */
export function refusedOf(reply: Document, statements: number): ReadonlyMap<number, number> {
  // Some versions of the driver throw this, others leave it in the reply.
  const unconfirmed = reply["writeConcernError"];
  if (unconfirmed !== undefined) {
    const error = new Error("The write was not confirmed by a majority.", { cause: unconfirmed });
    error.name = "MongoWriteConcernError";
    throw mapError(error);
  }
  const refused = refusedBy(reply);
  const made = Number(reply["n"]);
  if (made + refused.size === statements) return refused;
  throw new StoreUnavailableError(
    `MongoDB answered that it made ${made} and refused ${refused.size} of ${statements} changes. Which of them it made is unknown.`,
  );
}
