import { resolve } from "node:path";
import { closedStore } from "../../store/index.ts";
import type { CasDriver, Change, ChangeResult, OnWake, StoredRecord, SwapBatch } from "../cas/index.ts";
import { packChanges } from "./change-format.js";
import { mapFailure } from "./errors.ts";
import { FolderThread } from "./folder-thread.ts";
import type { Outcome, Replies, Request, Row, SwapReply, SwapRequest } from "./protocol.ts";
import { WakeSockets } from "./wake-sockets.ts";

/** Keys that a sweep looks at in one transaction; between them others have their turn. */
const SWEEPS = 100;
/**
 * Up to here, a commit takes no longer than this process and its thread need for a hundred changes. docs/decisions/0011-file-store.md
 * has the figures.
 */
const QUICK_DISK_MS = 0.4;

/** What LMDB takes as a key everywhere, with the mark that stands before the name of an owner. */
const MAX_OWNER_BYTES = 1_899;

/** Keeps records in the files of a folder. */
export function fileDriver(path: string): CasDriver {
  // The process may change its working directory later.
  const folder = resolve(path);
  const listeners = new Map<string, OnWake>();
  const sockets = new WakeSockets({
    folder,
    onWake: ({ owner, key, id, fence }) => listeners.get(owner)?.(key, id, fence),
    onDead: (socket) => quietly(ask({ verb: "forget", socket })),
  });
  let registered: string | undefined;
  let thread: FolderThread | undefined;
  let closed = false;

  async function ask<R extends Request>(request: R): Promise<Replies[R["verb"]]> {
    // What ends late must not start the thread again, which nobody would end.
    if (closed) throw closedStore("file");
    thread ??= FolderThread.of(folder);
    return thread.ask(request);
  }

  return {
    name: "file",
    durability: "local",
    checksTime: true,
    // Neighbours are on the same pages, so fewer of those are written.
    compareKeys: (a, b) => (a < b ? -1 : 1),
    // A disk takes as long for half of them, so two commits instead of one are worth it where it is the quicker side.
    get worksInHalves() {
      return (thread?.diskMs ?? 0) < QUICK_DISK_MS;
    },

    async read(keys) {
      const { nowMs, rows } = await ask({ verb: "read", keys });
      return { nowMs, records: rows.map(stored) };
    },

    /** Starts the thread, which opens the files: that takes longer than all that follows, and would make the time uncertain. */
    async prepare() {
      await ask({ verb: "read", keys: [] });
    },

    async swap(batch) {
      const request = requestOf(batch);
      const reply = await ask(request);
      const results = resultsOf(batch.changes, reply, folder);
      wake(batch.changes, results, request, reply);
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
      const bytes = Buffer.byteLength(owner);
      if (bytes > MAX_OWNER_BYTES)
        throw mapFailure({ code: "OWNER_TOO_LONG", message: `${bytes} bytes` }, folder);
      const socket = await sockets.start();
      await ask({ verb: "register", owner, socket });
      if (registered === undefined) {
        registered = socket;
        quietly(cleanUp());
      }
      listeners.set(owner, onWake);
      return () => {
        if (listeners.get(owner) !== onWake) return;
        listeners.delete(owner);
        quietly(ask({ verb: "forget", socket, owner }));
      };
    },

    async close() {
      closed = true;
      await sockets.close();
      if (registered !== undefined) quietly(thread?.ask({ verb: "forget", socket: registered }));
      await thread?.leave();
    },
  };

  async function cleanUp(): Promise<void> {
    await sockets.clean((await ask({ verb: "sockets" })).sockets);
  }

  /** Tells those whose claims were granted. Those are on the disk by now. */
  function wake(
    changes: readonly Change[],
    results: readonly ChangeResult[],
    { owners }: SwapRequest,
    { sockets: known }: SwapReply,
  ): void {
    if (owners.length === 0) return;
    for (const [place, { key, wakes }] of changes.entries()) {
      if (results[place]?.state !== "swapped") continue;
      for (const { owner, id, fence } of wakes) {
        const socket = known[owners.indexOf(owner)];
        if (socket !== undefined) sockets.send(socket, { owner, key, id, fence });
      }
    }
  }
}

function requestOf(batch: SwapBatch): SwapRequest {
  const { changes, earliestMs, latestMs } = batch;
  const { count, bytes } = packChanges(changes);
  const owners = ownersOf(changes);
  return { verb: "swap", earliestMs, latestMs, count, bytes, owners, forgettableFromMs: undefined };
}

/** Those whose claims are granted, each once. */
function ownersOf(changes: readonly Change[]): readonly string[] {
  const owners = new Set<string>();
  for (const { wakes } of changes) for (const { owner } of wakes) owners.add(owner);
  return [...owners];
}

function resultsOf(
  changes: readonly Change[],
  { version, others }: SwapReply,
  folder: string,
): readonly ChangeResult[] {
  // As many changes, as many of the same answer.
  const swapped: ChangeResult = { state: "swapped", version };
  const results: ChangeResult[] = changes.map(() => swapped);
  for (const [place, outcome] of others) results[place] = resultOf(outcome, folder);
  return results;
}

function resultOf(outcome: Outcome, folder: string): ChangeResult {
  if (typeof outcome === "number") return { state: "swapped", version: outcome };
  if (typeof outcome === "string") return { state: outcome };
  if ("failure" in outcome) return { state: "failed", error: mapFailure(outcome.failure, folder) };
  return { state: "conflict", current: stored(outcome.current) };
}

function stored(row: Row | undefined): StoredRecord | undefined {
  return row === undefined ? undefined : { version: row.version, text: row.text };
}

/** For what nobody waits for: an outage is told to whoever asks for something. */
function quietly(asked: Promise<unknown> | undefined): void {
  asked?.catch(() => {});
}
