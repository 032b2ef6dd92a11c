/** Versions that nobody else makes up, and that do not come back when a failover loses the latest ones. */
import { randomBytes } from "node:crypto";

/**
 * Eighty random bits of this store and a count, in the form of a uuid. One serves a whole batch, as every key is in a batch
 * only once.
 *
 * A sequence of the database would repeat versions after a failover to a replica that lacks the last of them: somebody who
 * knows a key in such a version from before the failover would then overwrite what was written in the same version after it.
 */
export function newVersions(): () => string {
  const own = randomBytes(10).toString("hex");
  const beginning = `${own.slice(0, 8)}-${own.slice(8, 12)}-${own.slice(12, 16)}-${own.slice(16)}-`;
  let count = 0;
  return () => beginning + (++count).toString(16).padStart(12, "0");
}
