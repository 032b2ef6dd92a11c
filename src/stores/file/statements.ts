/** The requests that a folder answers, each in a transaction. */
import type { Database } from "./database.ts";
import {
  type Answer,
  type Failure,
  failureOf,
  type ListReply,
  type ListRequest,
  type Message,
  type Outcome,
  type Reply,
  type Request,
  type Row,
  type SwapReply,
  type SwapRequest,
  type SweepReply,
} from "./protocol.ts";
import { textOf, versionOf } from "./rows.ts";

/** Entries that one sweep looks at, so that other requests wait for a moment only. */
const SWEEP_ENTRIES = 4_000;
const LACK_OF_ROOM = new Set<string | number>(["ENOSPC", "EDQUOT", "EFBIG"]);

export function answer(database: Database, { number, request }: Message): Answer {
  try {
    return { number, reply: replyTo(database, request) };
  } catch (error) {
    return { number, failure: lackOfRoom(error) };
  }
}

/** The failure, if the disk had no room. That is found before a change is written, so the transaction goes on without it. */
function lackOfRoom(error: unknown): Failure {
  const failure = failureOf(error);
  if (!LACK_OF_ROOM.has(failure.code)) throw error;
  return failure;
}

function replyTo(database: Database, request: Request): Reply {
  switch (request.verb) {
    case "read":
      return { nowMs: database.nowMs(), rows: request.keys.map((key) => rowOf(database, Buffer.from(key))) };
    case "swap":
      return swap(database, request);
    case "list":
      return list(database, request);
    case "sweep":
      return sweep(database, request.limit);
  }
}

function swap(database: Database, request: SwapRequest): SwapReply {
  // No other process has a transaction now, so all changes are made at this time.
  const nowMs = database.nowMs();
  const isTimely = nowMs >= request.earliestMs && nowMs <= request.latestMs;
  const version = database.nextVersion();
  const others: [place: number, outcome: Outcome][] = [];
  for (let place = 0; place < request.keys.length; place++) {
    const other = swapOne(database, request, place, isTimely ? version : undefined);
    if (other !== undefined) others.push([place, other]);
  }
  return { nowMs, version, others };
}

/** Makes one change. Returns the reason if it is not made; `version` is undefined if it comes too late. */
function swapOne(
  database: Database,
  { keys, expected, texts, keepUntilMs, idle }: SwapRequest,
  place: number,
  version: number | undefined,
): Outcome | undefined {
  const key = Buffer.from(keys[place] as string);
  const row = database.get(key);
  const present = row === undefined ? 0 : versionOf(row);
  if (present !== expected[place]) return { current: row && { version: present, text: textOf(row) } };
  const text = texts[place];
  if (text === undefined) return "same";
  if (version === undefined) return "untimely";
  try {
    const kept = { keepUntilMs: keepUntilMs[place] as number, idle: idle[place] as boolean };
    database.put(key, { version, text, ...kept }, present === 0);
    return undefined;
  } catch (error) {
    return { failure: lackOfRoom(error) };
  }
}

function rowOf(database: Database, key: Buffer): Row | undefined {
  const row = database.get(key);
  return row && { version: versionOf(row), text: textOf(row) };
}

function list(database: Database, { prefix, after, limit }: ListRequest): ListReply {
  const beginning = Buffer.from(prefix);
  // No key contains a zero, so this is the next possible key.
  const next = after === undefined ? beginning : Buffer.from(`${after}\0`);
  const start = Buffer.compare(next, beginning) < 0 ? beginning : next;
  const rows: { key: string; text: string }[] = [];
  for (const { key, value } of database.list(start, limit)) {
    if (!key.subarray(0, beginning.length).equals(beginning)) break;
    rows.push({ key: key.toString(), text: textOf(value) });
  }
  return { nowMs: database.nowMs(), rows };
}

function sweep(database: Database, limit: number): SweepReply {
  const { removed, looked } = database.removeEnded(SWEEP_ENTRIES, limit);
  return { removed, more: looked === SWEEP_ENTRIES };
}
