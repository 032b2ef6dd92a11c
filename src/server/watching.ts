/** Tells what keys look like, and what has changed since. Looks at the store every so often: no store pushes that. */
import { HoldfastError, type KeyStatus } from "../core/index.ts";
import type { GuardedStore } from "./guarded-store.ts";

/** What to watch: one key, or those that begin with a prefix. */
export type Watched = { readonly key: string } | { readonly prefix: string };

export interface WatchedChange {
  /** The key as it is now; absent once, when everything that there was in the beginning has been told. */
  readonly status: KeyStatus | undefined;
}

/** How often the store is looked at. */
const LOOK_MS = 500;

/** How many holders and waiters of a key are told, of each. */
const SHOWN_CLAIMS = 100;

/** The most keys of one watch, so that nobody can make the server remember all of them. */
const MAX_KEYS = 10_000;

const PAGE_KEYS = 500;

export async function* watch(
  store: GuardedStore,
  watched: Watched,
  signal: AbortSignal,
): AsyncGenerator<WatchedChange, void, void> {
  let known = new Map<string, string>();
  for (let first = true; !signal.aborted; first = false) {
    const seen = new Map<string, string>();
    for await (const status of lookAt(store, watched)) {
      const look = fingerprint(status);
      if (known.get(status.key) !== look && !seen.has(status.key)) yield { status };
      seen.set(status.key, look);
      if (seen.size > MAX_KEYS) throw tooMany();
    }
    for (const key of known.keys()) if (!seen.has(key)) yield { status: freeKey(key) };
    known = seen;
    if (first) yield { status: undefined };
    await pause(LOOK_MS, signal);
  }
}

async function* lookAt(store: GuardedStore, watched: Watched): AsyncGenerator<KeyStatus, void, void> {
  if ("key" in watched) {
    yield* (await store.look({ key: watched.key, maxClaims: SHOWN_CLAIMS })).keys;
    return;
  }
  let cursor: string | undefined;
  do {
    const query = { prefix: watched.prefix, limit: PAGE_KEYS, maxClaims: SHOWN_CLAIMS };
    const page = await store.look(cursor === undefined ? query : { ...query, cursor });
    yield* page.keys;
    cursor = page.cursor;
  } while (cursor !== undefined);
}

/** What counts as a change: who holds and who waits, not how long they still may. */
function fingerprint(status: KeyStatus): string {
  const held = status.held.map(({ id, fence }) => `${id} ${fence}`);
  const waiting = status.waiting.map(({ id }) => id);
  return JSON.stringify([status.heldCount, status.waitingCount, held, waiting]);
}

function freeKey(key: string): KeyStatus {
  return { key, fence: 0n, held: [], heldCount: 0, heldWeight: 0, waiting: [], waitingCount: 0 };
}

function tooMany(): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `More than ${MAX_KEYS} keys begin like that, which is too many to watch. Use a longer prefix, or List.`,
  );
}

/** Lets some time pass, or less when the signal aborts. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms).unref();
    function done(): void {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
    signal.addEventListener("abort", done);
    if (signal.aborted) done();
  });
}
