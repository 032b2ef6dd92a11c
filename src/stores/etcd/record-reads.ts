/**
 * Reads records that may be as large as they can be. The client takes no answer of more than 4 MiB, and takes one that is larger for a
 * failure of the server, from which it keeps away then: also with what others ask.
 */
import type { EtcdKeyValue } from "./client.ts";
import type { Connection } from "./connection.ts";
import { get } from "./requests.ts";

const KIB = 1_024;
/** The largest record that the store writes. */
export const RECORD_BYTES = 512 * KIB;
/** In one request. One more would leave no room for what is told beside them. */
const RECORDS_AT_ONCE = (4 * KIB * KIB) / RECORD_BYTES - 1;
/** Requests at the same time. */
const REQUESTS_AT_ONCE = 8;

/** What these keys have, in the same order; undefined where there is none. Not all of them are of the same moment. */
export async function readRecords(
  connection: Connection,
  keys: readonly Buffer[],
): Promise<(EtcdKeyValue | undefined)[]> {
  const found: (EtcdKeyValue | undefined)[] = [];
  for (let at = 0; at < keys.length; at += RECORDS_AT_ONCE * REQUESTS_AT_ONCE) {
    const groups: (readonly Buffer[])[] = [];
    const end = Math.min(keys.length, at + RECORDS_AT_ONCE * REQUESTS_AT_ONCE);
    for (let from = at; from < end; from += RECORDS_AT_ONCE)
      groups.push(keys.slice(from, Math.min(end, from + RECORDS_AT_ONCE)));
    const answers = await Promise.all(groups.map((group) => readSome(connection, group)));
    found.push(...answers.flat());
  }
  return found;
}

async function readSome(
  connection: Connection,
  keys: readonly Buffer[],
): Promise<(EtcdKeyValue | undefined)[]> {
  const { responses } = await connection.txn({ success: keys.map(get) });
  return keys.map((_, index) => responses[index]?.response_range.kvs[0]);
}
