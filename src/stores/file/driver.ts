/** The driver of the compare-and-swap engine for a folder. */
import { resolve } from "node:path";
import { closedStore } from "../../store/index.ts";
import type { CasDriver, Change, ChangeResult, OnWake, StoredRecord, SwapBatch } from "../cas/index.ts";
import { FolderClient } from "./client.ts";
import { mapFailure } from "./errors.ts";
import type { Outcome, Replies, Request, Row, SwapReply, SwapRequest } from "./protocol.ts";
import { WakeSockets } from "./wake.ts";

/** Requests of one sweep. Requests of others are answered between them. */
const SWEEPS = 100;

export function fileDriver(path: string): CasDriver {
  // The process may change its working directory later.
  const folder = resolve(path);
  const listeners = new Map<string, OnWake>();
  const sockets = new WakeSockets(folder, ({ owner, key, id, fence }) =>
    listeners.get(owner)?.(key, id, fence),
  );
  let client: FolderClient | undefined;
  let closed = false;

  async function ask<R extends Request>(request: R): Promise<Replies[R["verb"]]> {
    // A request after close() would start a thread that nothing ends.
    if (closed) throw closedStore("file");
    client ??= FolderClient.of(folder);
    return client.ask(request);
  }

  return {
    name: "file",
    durability: "local",
    checksTime: true,

    async read(keys) {
      const { nowMs, rows } = await ask({ verb: "read", keys });
      return { nowMs, records: rows.map(stored) };
    },

    /** Opening the file takes longer than any request, and would make the server's time uncertain. */
    async prepare() {
      await ask({ verb: "read", keys: [] });
    },

    async swap(batch) {
      const reply = await ask(requestOf(batch));
      const results = resultsOf(batch.changes, reply, folder);
      for (const [place, { key, wakes }] of batch.changes.entries()) {
        if (results[place]?.state !== "swapped") continue;
        for (const { owner, id, fence } of wakes) sockets.send({ owner, key, id, fence });
      }
      return { nowMs: reply.nowMs, results };
    },

    async list(prefix, after, limit) {
      const { nowMs, rows } = await ask({ verb: "list", prefix, after, limit });
      return { nowMs, records: rows };
    },

    async sweep(limit) {
      let removed = 0;
      for (let round = 0; round < SWEEPS && removed < limit; round++) {
        const reply = await ask({ verb: "sweep", limit: limit - removed });
        removed += reply.removed;
        if (!reply.more) break;
      }
      return removed;
    },

    async listen(owner, onWake) {
      // Makes the folder, or reports why it cannot be used.
      await ask({ verb: "read", keys: [] });
      const leave = await sockets.register(owner);
      listeners.set(owner, onWake);
      return () => {
        if (listeners.get(owner) !== onWake) return;
        listeners.delete(owner);
        leave();
      };
    },

    async close() {
      closed = true;
      await sockets.close();
      await client?.leave();
    },
  };
}

function requestOf({ changes, earliestMs, latestMs }: SwapBatch): SwapRequest {
  return {
    verb: "swap",
    keys: changes.map(({ key }) => key),
    expected: changes.map(({ expected }) => (expected === undefined ? 0 : Number(expected))),
    texts: changes.map(({ text }) => text),
    keepUntilMs: changes.map(({ keepUntilMs }) => keepUntilMs),
    idle: changes.map(({ idle }) => idle),
    earliestMs,
    latestMs,
  };
}

function resultsOf(
  changes: readonly Change[],
  { version, others }: SwapReply,
  folder: string,
): readonly ChangeResult[] {
  const swapped: ChangeResult = { state: "swapped", version };
  const results: ChangeResult[] = changes.map(() => swapped);
  for (const [place, outcome] of others) results[place] = resultOf(outcome, folder);
  return results;
}

function resultOf(outcome: Outcome, folder: string): ChangeResult {
  if (typeof outcome === "string") return { state: outcome };
  if ("failure" in outcome) return { state: "failed", error: mapFailure(outcome.failure, folder) };
  return { state: "conflict", current: stored(outcome.current) };
}

function stored(row: Row | undefined): StoredRecord | undefined {
  return row === undefined ? undefined : { version: row.version, text: row.text };
}
