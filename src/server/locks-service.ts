/** The service `Locks`: see proto/holdfast/v1/locks.proto for what each call means. */
import { randomUUID } from "node:crypto";
import type { ServiceImpl } from "@connectrpc/connect";
import type { Lease } from "../client/index.ts";
import { errorOf, type locks as wire, wireKey, wireMs } from "../protocol/index.ts";
import { HoldfastError, invalid, StoreUnavailableError } from "../store/index.ts";
import { checkMay } from "./access.ts";
import { type Terms, termsOf, termsOfMany } from "./acquire-terms.ts";
import type { Call, Wrapping } from "./calls.ts";
import type { Clients } from "./clients.ts";
import type { GuardedStore } from "./guarded-store.ts";
import { Holding, type HoldingEvent, isContention } from "./holding.ts";
import type { KeyFeed, Watched } from "./key-feed.ts";
import type { ResolvedLimits } from "./limits.ts";
import { shownTo } from "./ownership.ts";
import type { QueuePlaces } from "./queue-places.ts";
import { occupy, occupyUntil } from "./quota.ts";

export interface LocksServiceContext {
  readonly store: GuardedStore;
  readonly limits: ResolvedLimits;
  readonly clients: Clients;
  readonly feed: KeyFeed;
  readonly places: QueuePlaces;
  readonly wrapping: Wrapping;
}

const DEFAULT_SHOWN_CLAIMS = 100;
const DEFAULT_PAGE_KEYS = 100;

export function locksService(context: LocksServiceContext): ServiceImpl<typeof wire.Locks> {
  const { store, limits, clients, feed, places } = context;
  const { unary, stream } = context.wrapping;

  /** Takes what the terms ask for, and tells what becomes of it. */
  async function* hold(
    terms: Terms,
    { visitor, gone }: Call,
  ): AsyncGenerator<[HoldingEvent, Holding], void, void> {
    const check = () => {
      for (const { key } of terms.keys) checkMay(visitor.principal(), "acquire", key, terms.acquire.id);
    };
    check();
    const { id = randomUUID(), token = randomUUID() } = terms.acquire;
    const { client } = visitor;
    const holding = new Holding({ terms, id, token, store, asker: visitor, places });
    const leaveWaiting = occupy(client, "maxWaitingCalls", limits);
    let leaveOwner: (() => void) | undefined;
    const stopWaiting = () => {
      leaveWaiting();
      leaveOwner?.();
    };
    const exit = () => clients.exit(client, holding);
    // A caller that is gone need not ask for the next event, so the end of the call does not wait for that.
    const disconnect = () => {
      stopWaiting();
      void holding.disconnect().then(exit);
    };
    try {
      const { locks, names } = clients.enter(visitor, holding);
      if (terms.acquire.waitMs !== 0) leaveOwner = names.enter(holding.owner);
      gone.addEventListener("abort", disconnect);
      if (gone.aborted) disconnect();
      for await (const event of holding.events(locks)) {
        if (event.case === "acquired") stopWaiting();
        // A token that was taken back, or permits less than before, ends the call at its next heartbeat.
        check();
        yield [event, holding];
      }
    } finally {
      stopWaiting();
      gone.removeEventListener("abort", disconnect);
      stopWaiting();
      gone.removeEventListener("abort", disconnect);
      exit();
    }
  }

  return {
    acquire: stream(async function* (request, call) {
      for await (const [event, holding] of hold(termsOf(request, limits), call)) {
        if (event.case === "acquired") {
          const [lease] = leasesOf(event.leases, holding);
          yield { event: { case: "acquired", value: { ...(lease !== undefined && { lease }) } } };
        } else yield { event: wireEvent(event, holding) };
      }
    }),

    acquireMany: stream(async function* (request, call) {
      for await (const [event, holding] of hold(termsOfMany(request, limits), call)) {
        if (event.case === "acquired") {
          yield { event: { case: "acquired", value: { leases: leasesOf(event.leases, holding) } } };
        } else yield { event: wireEvent(event, holding) };
      }
    }),

    acquireDetached: unary(async (request, call) => {
      const terms = { ...termsOf(request, limits), detached: true };
      for await (const [event, holding] of hold(terms, call)) {
        if (event.case === "acquired") {
          const [lease] = leasesOf(event.leases, holding);
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

    release: unary(async ({ key, id, token }, { visitor }) => {
      checkMay(visitor.principal(), "acquire", key, id);
      const ref = { key, id, token: needToken(token, key) };
      const holding = clients.find(visitor.client, ref);
      if (holding?.terms.keys.length === 1) return { released: await holding.release() };
      const [released = false] = await store.release([ref], visitor);
      return { released };
    }),

    extend: unary(async ({ key, id, token, ttlMs }, { visitor }) => {
      checkMay(visitor.principal(), "acquire", key, id);
      const ref = { key, id, token: needToken(token, key) };
      const [answer] = await store.renew([ttlMs === 0 ? ref : { ...ref, ttlMs }], visitor);
      if (answer?.state === "held") return { fence: answer.fence, expiresInMs: wireMs(answer.expiresInMs) };
      if (answer?.state === "failed") throw answer.error;
      throw notHeld(key, answer?.state === "waiting" ? "it still waits" : "it is gone");
    }),

    status: unary(async ({ key, maxClaims }, { visitor }) => {
      checkMay(visitor.principal(), "read", key);
      const { keys } = await store.look({ key, maxClaims: maxClaims || DEFAULT_SHOWN_CLAIMS });
      return {
        ...(keys[0] !== undefined && {
          status: wireKey(shownTo(visitor.principal(), visitor.client, keys[0])),
        }),
      };
    }),

    list: unary(async ({ prefix, cursor, pageSize, maxClaims }, { visitor }) => {
      checkMay(visitor.principal(), "read", prefix);
      const page = await store.look({
        prefix,
        limit: pageSize || DEFAULT_PAGE_KEYS,
        maxClaims: maxClaims || DEFAULT_SHOWN_CLAIMS,
        ...(cursor !== "" && { cursor }),
      });
      const keys = page.keys.map((status) => wireKey(shownTo(visitor.principal(), visitor.client, status)));
      return { keys, cursor: page.cursor ?? "" };
    }),

    watch: stream(async function* ({ what }, { visitor, gone, leaving }) {
      const watched = watchedOf(what);
      const keyOrPrefix = "key" in watched ? watched.key : watched.prefix;
      checkMay(visitor.principal(), "read", keyOrPrefix);
      occupyUntil(gone, visitor.client, "maxWatches", limits);
      for await (const { status } of feed.watch(watched, AbortSignal.any([gone, leaving]))) {
        checkMay(visitor.principal(), "read", keyOrPrefix);
        const principal = visitor.principal();
        yield status === undefined
          ? { caughtUp: true }
          : { status: wireKey(shownTo(principal, visitor.client, status)) };
      }
      if (leaving.aborted)
        throw new StoreUnavailableError("The server is stopping. Watch on another server.");
    }),

    forceRelease: unary(async ({ key, id }, { visitor }) => {
      checkMay(visitor.principal(), "admin", key, id);
      const [released = false] = await store.release([{ key, id }], visitor);
      return { released };
    }),
  };
}

/** What the two kinds of events have in common on the wire. */
function wireEvent(event: Exclude<HoldingEvent, { case: "acquired" }>, { id, token }: Holding) {
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

function leasesOf(leases: readonly Lease[], holding: Holding) {
  return leases.map(({ key, id, token, fence }, index) => {
    return { key, id, token, fence, expiresInMs: wireMs(holding.expiresInMs(index)) };
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
