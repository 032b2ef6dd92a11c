/**
 * Stores that break one promise each, made from the memory store. The contract suite has to tell every one of them.
 */
import { randomUUID } from "node:crypto";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  type Clock,
  type KeyStatus,
  type LookPage,
  memoryStore,
  type RenewAnswer,
  type Store,
  UNLIMITED,
} from "holdfast";
import type { OpenOptions } from "holdfast/testing";
import { storeOver } from "../stores/store-over.ts";

interface Making extends OpenOptions {
  readonly clock: Clock;
}

type MakeStore = (options: Making) => Store;

/** The memory store with some of its methods in another form. */
function altered(alter: (inner: Store, options: Making) => Partial<Store>): MakeStore {
  return (options) => {
    const inner = memoryStore(options);
    return storeOver(inner, { name: "broken", ...alter(inner, options) });
  };
}

const requestsAs = (change: (request: ClaimRequest) => Partial<ClaimRequest>): MakeStore =>
  altered((inner) => ({ acquire: (request) => inner.acquire({ ...request, ...change(request) }) }));

const pagesAs = (change: (page: LookPage) => LookPage): MakeStore =>
  altered((inner) => ({ look: async (query) => change(await inner.look(query)) }));

const statusesAs = (change: (status: KeyStatus) => KeyStatus): MakeStore =>
  pagesAs((page) => ({ ...page, keys: page.keys.map(change) }));

const keysAs = (change: (key: string) => string): MakeStore =>
  altered((inner) => {
    const renamed = <T extends ClaimRef>(refs: readonly T[]) =>
      refs.map((ref) => ({ ...ref, key: change(ref.key) }));
    return {
      acquire: (request) => inner.acquire({ ...request, key: change(request.key) }),
      renew: (refs) => inner.renew(renamed(refs)),
      release: (refs) => inner.release(renamed(refs)),
      look: async (query) => {
        if (!("key" in query)) return inner.look(query);
        const page = await inner.look({ ...query, key: change(query.key) });
        return { ...page, keys: page.keys.map((status) => ({ ...status, key: query.key })) };
      },
    };
  });

const withoutToken = ({ key, id }: ClaimRef): ClaimRef => ({ key, id });

/** Answers to acquire and renew with another fence. */
function fencesAs(change: (fence: bigint, key: string) => bigint): MakeStore {
  return altered((inner) => {
    const fenced = <A extends AcquireAnswer | RenewAnswer>(answer: A, key: string): A =>
      answer.state === "held" ? { ...answer, fence: change(answer.fence, key) } : answer;
    return {
      acquire: async (request) => fenced(await inner.acquire(request), request.key),
      renew: async (refs) =>
        (await inner.renew(refs)).map((answer, index) => fenced(answer, refs[index]!.key)),
    };
  });
}

export const brokenStores = {
  "release ignores the token": altered((inner) => ({
    release: (refs) => inner.release(refs.map(withoutToken)),
  })),

  "renew ignores the token": altered((inner) => ({
    renew: (refs) => inner.renew(refs.map(({ token: _, ...ref }) => ref)),
  })),

  "a late release frees whoever holds": altered((inner) => ({
    release: async (refs) => {
      const released = await inner.release(refs);
      for (const [index, { key }] of refs.entries()) {
        const [holder] = (await inner.look({ key, maxClaims: 1 })).keys[0]!.held;
        if (released[index] === false && holder !== undefined) await inner.release([{ key, id: holder.id }]);
      }
      return released;
    },
  })),

  "release says true for what is not there": altered((inner) => ({
    release: async (refs) => (await inner.release(refs)).map(() => true),
  })),

  "renew shortens": altered((inner, { clock }) => {
    const ends = new Map<string, { readonly ref: ClaimRef; readonly atMs: number }>();
    const expire = async () => {
      for (const [name, { ref, atMs }] of ends) {
        if (atMs > clock.monotonicMs()) continue;
        ends.delete(name);
        await inner.release([ref]);
      }
    };
    return {
      acquire: async (request) => {
        await expire();
        return inner.acquire(request);
      },
      renew: async (refs) => {
        await expire();
        for (const ref of refs) {
          if (ref.ttlMs === undefined) continue;
          ends.set(`${ref.key} ${ref.id}`, { ref, atMs: clock.monotonicMs() + ref.ttlMs });
        }
        return inner.renew(refs);
      },
    };
  }),

  "renew does nothing for waiting claims": altered((inner) => ({
    renew: (refs) =>
      Promise.all(
        refs.map(async (ref) => {
          const { waiting, fence } = (await inner.look({ key: ref.key, maxClaims: 1_000 })).keys[0]!;
          const claim = waiting.find(({ id }) => id === ref.id);
          if (claim === undefined) return (await inner.renew([ref]))[0]!;
          const { expiresInMs } = claim;
          return { state: "waiting", expiresInMs, retryInMs: expiresInMs, fence } as const;
        }),
      ),
  })),

  "a claim is prolonged when it is granted": altered((inner) => ({
    release: async (refs) => {
      const released = await inner.release(refs);
      for (const { key } of refs) {
        const { held } = (await inner.look({ key, maxClaims: 100 })).keys[0]!;
        if (held.length > 0) await inner.renew(held.map(({ id }) => ({ key, id })));
      }
      return released;
    },
  })),

  "expiry is ignored": ({ clock, ...options }) => {
    const [wallMs, monotonicMs] = [clock.wallMs(), clock.monotonicMs()];
    return memoryStore({
      ...options,
      clock: { wallMs: () => wallMs, monotonicMs: () => monotonicMs, setTimer: clock.setTimer.bind(clock) },
    });
  },

  "waiting claims never expire": altered((inner) => ({
    acquire: async (request) => {
      const answer = await inner.acquire(request);
      if (answer.state === "waiting") await inner.renew([{ ...request, ttlMs: 86_400_000 }]);
      return answer;
    },
  })),

  "the caller's ttl judges every other holder": altered((inner, { clock }) => ({
    acquire: async (request) => {
      const nowMs = clock.wallMs();
      const { held } = (await inner.look({ key: request.key, maxClaims: 100 })).keys[0]!;
      const old = held.filter((claim) => claim.acquiredAtMs! + request.ttlMs < nowMs);
      await inner.release(old.map(({ id }) => ({ key: request.key, id })));
      return inner.acquire(request);
    },
  })),

  "the fence is constant": fencesAs(() => 1n),

  "fences go back when a key was idle": altered((inner) => {
    const bases = new Map<string, bigint>();
    const counted = <A extends AcquireAnswer | RenewAnswer>(answer: A, key: string): A => {
      if (answer.state !== "held") return answer;
      const base = bases.get(key) ?? answer.fence - 1n;
      bases.set(key, base);
      return { ...answer, fence: answer.fence - base };
    };
    return {
      acquire: async (request) => counted(await inner.acquire(request), request.key),
      renew: async (refs) =>
        (await inner.renew(refs)).map((answer, index) => counted(answer, refs[index]!.key)),
      release: async (refs) => {
        const released = await inner.release(refs);
        for (const { key } of refs) {
          const status = (await inner.look({ key, maxClaims: 0 })).keys[0]!;
          if (status.heldCount === 0) bases.delete(key);
        }
        return released;
      },
    };
  }),

  "a takeover keeps the fence": altered((inner) => {
    const fences = new Map<string, bigint>();
    return {
      acquire: async (request) => {
        const answer = await inner.acquire(request);
        if (answer.state !== "held") return answer;
        const fence = fences.get(request.id) ?? answer.fence;
        fences.set(request.id, fence);
        return { ...answer, fence };
      },
    };
  }),

  "a takeover leaves the former token valid": altered((inner) => {
    const tokens = new Map<string, string>();
    const first = (request: ClaimRequest) => {
      const token = tokens.get(request.id) ?? request.token;
      tokens.set(request.id, token);
      return token;
    };
    return { acquire: (request) => inner.acquire({ ...request, token: first(request) }) };
  }),

  "asking again is contention": altered((inner) => ({
    acquire: async (request) => {
      const { held } = (await inner.look({ key: request.key, maxClaims: 1_000 })).keys[0]!;
      const known = held.some(({ id }) => id === request.id);
      return known ? { state: "refused", reason: "contended" } : inner.acquire(request);
    },
  })),

  "asking again joins the end of the queue": altered((inner) => ({
    acquire: async (request) => {
      const { waiting } = (await inner.look({ key: request.key, maxClaims: 1_000 })).keys[0]!;
      if (waiting.some(({ id }) => id === request.id)) await inner.release([withoutToken(request)]);
      return inner.acquire(request);
    },
  })),

  "a reused id is taken for the old claim": altered((inner) => ({
    acquire: async (request) => {
      const answer = await inner.acquire(request);
      if (answer.state !== "refused" || answer.reason !== "id-reused") return answer;
      return (await inner.renew([withoutToken(request)]))[0] as AcquireAnswer;
    },
  })),

  "a try queues": altered((inner) => ({
    acquire: async (request) => {
      const answer = await inner.acquire({ ...request, wait: true });
      return request.wait || answer.state !== "waiting" ? answer : { state: "refused", reason: "contended" };
    },
  })),

  "a try overtakes the queue": requestsAs(({ wait, priority }) => ({ priority: wait ? priority : 65_535 })),
  "priority is ignored": requestsAs(() => ({ priority: 0 })),
  "the newest goes first": altered((inner) => {
    let arrivals = 0;
    return { acquire: (request) => inner.acquire({ ...request, priority: ++arrivals }) };
  }),
  "limits are ignored": requestsAs(() => ({ limit: UNLIMITED })),
  "weights are ignored": requestsAs(() => ({ weight: 1 })),
  "readers are writers": requestsAs(({ limit }) => ({ limit: limit === UNLIMITED ? 1 : limit })),
  "a queue is never full": ({ clock }) => memoryStore({ clock }),
  "an impossible ttl is corrected silently": requestsAs(({ ttlMs }) => ({
    ttlMs: Math.min(Math.max(Math.round(Number(ttlMs)) || 10, 10), 86_400_000),
  })),
  "info is dropped": requestsAs(() => ({ info: "" })),

  "batches are answered out of order": altered((inner) => ({
    renew: async (refs) => (await inner.renew(refs)).toReversed(),
  })),
  "a batch stops at the first that is not there": altered((inner) => ({
    release: async (refs) => {
      const released: boolean[] = [];
      for (const ref of refs) {
        const lost = released.includes(false);
        released.push(lost ? false : (await inner.release([ref]))[0]!);
      }
      return released;
    },
  })),

  "a listing ends after its first page": pagesAs(({ keys }) => ({ keys })),
  "a page can be asked for only once": altered((inner) => {
    const asked = new Set<string>();
    return {
      look: async (query) => {
        const cursor = "cursor" in query ? query.cursor : undefined;
        if (cursor !== undefined && asked.has(cursor)) return { keys: [] };
        if (cursor !== undefined) asked.add(cursor);
        return inner.look(query);
      },
    };
  }),
  "a listing ignores its prefix": altered((inner) => ({
    look: (query) => inner.look("prefix" in query ? { ...query, prefix: "" } : query),
  })),
  "a listing reads its prefix as a pattern": altered((inner) => ({
    look: async (query) => {
      if (!("prefix" in query)) return inner.look(query);
      const page = await inner.look({ ...query, prefix: query.prefix.split(/[_%*?]/)[0]! });
      const escaped = query.prefix.replace(/[.+^${}()|[\]\\]/g, "\\$&");
      const pattern = new RegExp(`^${escaped.replace(/[*%]/g, ".*").replace(/[_?]/g, ".")}`);
      return { ...page, keys: page.keys.filter(({ key }) => pattern.test(key)) };
    },
  })),
  "a look shows the token": statusesAs((status) => ({
    ...status,
    held: status.held.map((claim) => ({ ...claim, token: "secret" })),
  })),
  "counts are cut with the lists": statusesAs((status) => ({ ...status, heldCount: status.held.length })),
  "waiting claims are shown in any order": statusesAs((status) => ({
    ...status,
    waiting: status.waiting.toReversed(),
  })),

  "keys are compared without case": keysAs((key) => key.toLowerCase()),
  "spaces at the end of a key are lost": keysAs((key) => key.trimEnd() || key),
  "keys are normalised": keysAs((key) => key.normalize("NFC")),

  "nobody is told of a grant": altered(() => ({ onGrant: () => () => {} })),
  "everybody is told of a grant": altered((inner) => {
    const everybody = new Set<(refs: readonly ClaimRef[]) => void>();
    return {
      onGrant: (owner, listener) => {
        everybody.add(listener);
        const stop = inner.onGrant(owner, (refs) => {
          for (const each of everybody) each(refs);
        });
        return () => {
          everybody.delete(listener);
          stop();
        };
      },
    };
  }),
  "a push names another fence than the grant's": altered((inner) => ({
    onGrant: (owner, listener) =>
      inner.onGrant(owner, (refs) =>
        listener(refs.map((ref) => ({ ...ref, fence: (ref.fence ?? 0n) + 1n }))),
      ),
  })),
  "a waiter is not told the fence of the latest grant": altered((inner) => ({
    acquire: async (request) => {
      const answer = await inner.acquire(request);
      return answer.state === "waiting" ? { ...answer, fence: 0n } : answer;
    },
  })),
  "unsubscribing does nothing": altered((inner) => ({
    onGrant: (owner, listener) => {
      inner.onGrant(owner, listener);
      return () => {};
    },
  })),
  "grants of an unknown claim are pushed": altered((inner) => ({
    onGrant: (owner, listener) =>
      inner.onGrant(owner, (refs) => listener(refs.map((ref) => ({ ...ref, id: randomUUID() })))),
  })),

  "a closed store goes on": altered(() => ({ close: async () => {} })),
  "verbs throw instead of rejecting": altered((inner) => ({
    acquire: (request) => {
      if (request.ttlMs === 0) throw new Error("ttlMs must not be 0.");
      return inner.acquire(request);
    },
  })),
} satisfies Record<string, MakeStore>;
