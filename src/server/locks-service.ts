/** The service `Locks`: proto/holdfast/v1/locks.proto documents each call. */
import { randomUUID } from "node:crypto";
import type { ServiceImpl } from "@connectrpc/connect";
import type { Lease } from "../client/index.ts";
import { errorOf, type locks as wire, wireKey, wireMs } from "../protocol/index.ts";
import { HoldfastError, invalid, StoreUnavailableError } from "../store/index.ts";
import { checkMay } from "./access.ts";
import { AcquireCall, type AcquireEvent, isContention } from "./acquire-call.ts";
import type { AcquireCalls } from "./acquire-calls.ts";
import { type Terms, termsOf, termsOfMany } from "./acquire-terms.ts";
import { occupy } from "./callers.ts";
import type { Call, MethodWrappers } from "./calls.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { KeyFeed, Watched } from "./key-feed.ts";
import type { ResolvedLimits } from "./limits.ts";
import { shownTo } from "./ownership.ts";
import type { QueuePositions } from "./queue-positions.ts";

export interface LocksServiceContext {
  readonly store: GuardedStore;
  readonly limits: ResolvedLimits;
  readonly acquireCalls: AcquireCalls;
  readonly feed: KeyFeed;
  readonly positions: QueuePositions;
  readonly wrappers: MethodWrappers;
}

const DEFAULT_SHOWN_CLAIMS = 100;
const DEFAULT_PAGE_KEYS = 100;

export function locksService(context: LocksServiceContext): ServiceImpl<typeof wire.Locks> {
  const { store, limits, acquireCalls, feed, positions } = context;
  const { unary, stream } = context.wrappers;

  /** Acquires by the terms, and yields the events of the call. */
  async function* acquire(
    terms: Terms,
    { caller, gone }: Call,
  ): AsyncGenerator<[AcquireEvent, AcquireCall], void, void> {
    const check = () => {
      for (const { key } of terms.keys) checkMay(caller.principal(), "acquire", key, terms.acquire.id);
    };
    check();
    const { client } = caller;
    const { id = randomUUID(), token = randomUUID() } = terms.acquire;
    const call = new AcquireCall({ terms, id, token, store, caller, positions });
    const waitEnds = [occupy(client, "maxWaitingCalls", limits)];
    const stopWaiting = () => {
      for (const end of waitEnds) end();
    };
    const exit = () => acquireCalls.exit(client, call);
    // A caller that is gone does not ask for the next event, so this does not wait for the generator.
    const disconnect = () => {
      stopWaiting();
      void call.disconnect().then(exit);
    };
    try {
      const { locks, listen } = acquireCalls.enter(caller, call);
      if (terms.acquire.waitMs !== 0) waitEnds.push(listen());
      gone.addEventListener("abort", disconnect);
      if (gone.aborted) disconnect();
      for await (const event of call.events(locks)) {
        if (event.case === "acquired") stopWaiting();
        // Ends the call of a token that was removed or has lost the permission.
        check();
        yield [event, call];
      }
    } finally {
      stopWaiting();
      gone.removeEventListener("abort", disconnect);
      exit();
    }
  }

  return {
    acquire: stream(async function* (request, call) {
      for await (const [event, acquireCall] of acquire(termsOf(request, limits), call)) {
        if (event.case === "acquired") {
          const [lease] = leasesOf(event.leases, acquireCall);
          yield { event: { case: "acquired", value: { ...(lease !== undefined && { lease }) } } };
        } else yield { event: wireEvent(event, acquireCall) };
      }
    }),

    acquireMany: stream(async function* (request, call) {
      for await (const [event, acquireCall] of acquire(termsOfMany(request, limits), call)) {
        if (event.case === "acquired") {
          yield { event: { case: "acquired", value: { leases: leasesOf(event.leases, acquireCall) } } };
        } else yield { event: wireEvent(event, acquireCall) };
      }
    }),

    acquireDetached: unary(async (request, call) => {
      const terms = { ...termsOf(request, limits), detached: true };
      for await (const [event, acquireCall] of acquire(terms, call)) {
        if (event.case === "acquired") {
          const [lease] = leasesOf(event.leases, acquireCall);
          if (lease !== undefined) return { acquired: true, lease };
        }
        if (event.case !== "failed") continue;
        if (isContention(event.failure)) return { acquired: false };
        throw errorOf(event.failure);
      }
      throw new HoldfastError("LEASE_LOST", `Another call has taken over the claim on "${request.key}".`, {
        key: request.key,
      });
    }),

    release: unary(async ({ key, id, token }, { caller }) => {
      checkMay(caller.principal(), "acquire", key, id);
      const ref = { key, id, token: needToken(token, key) };
      const open = acquireCalls.find(caller.client, ref);
      if (open?.terms.keys.length === 1) return { released: await open.release() };
      const [released = false] = await store.release([ref], caller);
      return { released };
    }),

    extend: unary(async ({ key, id, token, ttlMs }, { caller }) => {
      checkMay(caller.principal(), "acquire", key, id);
      const ref = { key, id, token: needToken(token, key) };
      const [answer] = await store.renew([ttlMs === 0 ? ref : { ...ref, ttlMs }], caller);
      if (answer?.state === "held") return { fence: answer.fence, expiresInMs: wireMs(answer.expiresInMs) };
      if (answer?.state === "failed") throw answer.error;
      throw notHeld(key, answer?.state === "waiting" ? "it still waits" : "it is gone");
    }),

    status: unary(async ({ key, maxClaims }, { caller }) => {
      checkMay(caller.principal(), "read", key);
      const { keys } = await store.look({ key, maxClaims: maxClaims || DEFAULT_SHOWN_CLAIMS });
      return {
        ...(keys[0] !== undefined && {
          status: wireKey(shownTo(caller.principal(), caller.client, keys[0])),
        }),
      };
    }),

    list: unary(async ({ prefix, cursor, pageSize, maxClaims }, { caller }) => {
      checkMay(caller.principal(), "read", prefix);
      const page = await store.look({
        prefix,
        limit: pageSize || DEFAULT_PAGE_KEYS,
        maxClaims: maxClaims || DEFAULT_SHOWN_CLAIMS,
        ...(cursor !== "" && { cursor }),
      });
      const keys = page.keys.map((status) => wireKey(shownTo(caller.principal(), caller.client, status)));
      return { keys, cursor: page.cursor ?? "" };
    }),

    watch: stream(async function* ({ what }, { caller, gone, leaving }) {
      const watched = watchedOf(what);
      const keyOrPrefix = "key" in watched ? watched.key : watched.prefix;
      checkMay(caller.principal(), "read", keyOrPrefix);
      occupy(caller.client, "maxWatches", limits, gone);
      for await (const { status } of feed.watch(watched, AbortSignal.any([gone, leaving]))) {
        checkMay(caller.principal(), "read", keyOrPrefix);
        const principal = caller.principal();
        yield status === undefined
          ? { caughtUp: true }
          : { status: wireKey(shownTo(principal, caller.client, status)) };
      }
      if (leaving.aborted)
        throw new StoreUnavailableError("The server is stopping. Watch on another server.");
    }),

    forceRelease: unary(async ({ key, id }, { caller }) => {
      checkMay(caller.principal(), "admin", key, id);
      const [released = false] = await store.release([{ key, id }], caller);
      return { released };
    }),
  };
}

/** The fields that events of `Acquire` and `AcquireMany` share. */
function wireEvent(event: Exclude<AcquireEvent, { case: "acquired" }>, { id, token }: AcquireCall) {
  switch (event.case) {
    case "waiting": {
      const { key, position, length: queueLength } = event;
      return { case: "waiting" as const, value: { key, position, queueLength, id, token } };
    }
    case "heartbeat":
      return { case: "heartbeat" as const, value: { expiresInMs: wireMs(event.expiresInMs) } };
    case "lost":
      return { case: "lost" as const, value: { key: event.key, reason: event.reason } };
    case "failed":
      return { case: "failed" as const, value: event.failure };
  }
}

function leasesOf(leases: readonly Lease[], call: AcquireCall) {
  return leases.map(({ key, id, token, fence }, index) => {
    return { key, id, token, fence, expiresInMs: wireMs(call.expiresInMs(index)) };
  });
}

function needToken(token: string, key: string): string {
  if (token !== "") return token;
  throw invalid(
    "token must be the token that came with the lease. To end a claim of another caller, use ForceRelease.",
    key,
  );
}

function watchedOf(what: wire.WatchRequest["what"]): Watched {
  if (what.case === "key") return { key: what.value };
  if (what.case === "prefix") return { prefix: what.value };
  throw invalid("what must be a key or a prefix.");
}

function notHeld(key: string, why: string): HoldfastError {
  return new HoldfastError("NOT_HELD", `The lease on "${key}" does not exist: ${why}.`, { key });
}
