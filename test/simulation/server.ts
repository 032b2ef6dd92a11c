/** The store's side of the simulation: two ways of lifetimes records, and the calls that clients make over the network. */
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  type GrantListener,
  type KeyStatus,
  type LookPage,
  type LookQuery,
  memoryStore,
  type RenewAnswer,
  type RenewRef,
  type Store,
  StoreUnavailableError,
  type Unsubscribe,
} from "holdfast";
import { decodeRecord, encodeRecord } from "../../src/record/format.ts";
import {
  acquire,
  emptyRecord,
  isIdle,
  type LockRecord,
  type RecordClaim,
  release,
  renew,
  type Turn,
} from "../../src/record/record.ts";
import { describe } from "../../src/record/view.ts";
import type { Machine, World } from "./world.ts";

/** A store inside the server machine, all of whose keys can be looked at. */
export interface Backend {
  readonly name: string;
  readonly store: Store;
  onGrant(owner: string, listener: GrantListener): Unsubscribe;
  all(): Promise<readonly KeyStatus[]>;
  /** Starts the store again with nothing but what was written down. */
  restart(): void;
}

export const MAX_WAITERS = 50;

/** Loses everything when it is restarted. */
export function memoryBackend(machine: Machine): Backend {
  const listeners = new Map<string, GrantListener>();
  let store = open();

  function open(): Store {
    const opened = memoryStore({ clock: machine.clock, maxWaiters: MAX_WAITERS });
    for (const [owner, listener] of listeners) opened.onGrant(owner, listener);
    return opened;
  }

  return {
    name: "memory",
    get store() {
      return store;
    },
    onGrant(owner, listener) {
      listeners.set(owner, listener);
      return store.onGrant(owner, listener);
    },
    async all() {
      const { keys } = await store.look({ prefix: "", limit: 1_000, maxClaims: 1_000 });
      return keys;
    },
    restart() {
      store = open();
    },
  };
}

/** Keeps every record as the text that a swap store would, and reads it back for every operation. */
export function writtenBackend(machine: Machine): Backend {
  const texts = new Map<string, string>();
  const listeners = new Map<string, GrantListener>();
  let highWater = 0n;

  function apply<T>(asked: ClaimRef, change: (record: LockRecord, turn: Turn) => T): T {
    const { key } = asked;
    const text = texts.get(key);
    const record = text === undefined ? emptyRecord() : decodeRecord(text, key);
    const wallUs = BigInt(Math.floor(machine.clock.wallMs() * 1_000));
    const stamp = wallUs > highWater ? wallUs : highWater + 1n;
    const granted: RecordClaim[] = [];
    const turn: Turn = { nowMs: nowMs(), expiredMs: nowMs(), stamp, granted };
    const answer = change(record, turn);
    if (record.fence > highWater) highWater = record.fence;
    if (isIdle(record)) texts.delete(key);
    else texts.set(key, encodeRecord(record));
    // Whoever asked with the claim's own token learns of the grant from the answer.
    for (const claim of granted) {
      if (claim.token !== asked.token) listeners.get(claim.owner)?.([{ key, id: claim.id }]);
    }
    return answer;
  }

  function nowMs(): number {
    return Math.floor(machine.clock.wallMs());
  }

  const store: Store = {
    name: "written",
    durability: "local",
    counts: true,
    async acquire(request) {
      return apply(request, (record, turn) => acquire(record, request, MAX_WAITERS, turn));
    },
    async renew(refs) {
      return refs.map((ref) => apply(ref, (record, turn) => renew(record, ref, turn)));
    },
    async release(refs) {
      return refs.map((ref) => apply(ref, (record, turn) => release(record, ref, turn)));
    },
    async look(query: LookQuery): Promise<LookPage> {
      const keys = "key" in query ? [query.key] : [...texts.keys()];
      return { keys: keys.map((key) => show(key, query.maxClaims)) };
    },
    onGrant(owner, listener) {
      listeners.set(owner, listener);
      return () => listeners.delete(owner);
    },
    async close() {},
  };

  function show(key: string, maxClaims: number): KeyStatus {
    const text = texts.get(key);
    return describe(text === undefined ? emptyRecord() : decodeRecord(text, key), key, nowMs(), maxClaims);
  }

  return {
    name: "written",
    store,
    onGrant: store.onGrant,
    all: async () => [...texts.keys()].map((key) => show(key, 1_000)),
    restart() {
      // All is written down, and every operation has been reading it back.
    },
  };
}

/** The store as a client sees it: every call crosses the network and may never be answered. */
export function remoteStore(world: World, client: Machine, server: Machine, backend: Backend): Store {
  function call<T>(what: () => string, serve: () => Promise<T>, show: (answer: T) => string): Promise<T> {
    return new Promise((resolve, reject) => {
      world.send(client, server, what, () => {
        serve().then(
          (answer) =>
            world.send(
              server,
              client,
              () => `${what()} = ${show(answer)}`,
              () => resolve(answer),
            ),
          reject,
        );
      });
      if (world.random.chance(world.weather.reset)) {
        const broken = () => reject(new StoreUnavailableError("The connection broke."));
        world.in(world.random.between(1, 50), () => client.do(broken));
      }
    });
  }

  return {
    name: "simulated",
    durability: backend.store.durability,
    counts: true,
    acquire: (request: ClaimRequest) =>
      call(
        () => `acquire ${request.key} ${request.id}${request.wait ? "" : " (try)"}`,
        () => backend.store.acquire(request),
        (answer: AcquireAnswer) => answer.state,
      ),
    renew: (refs: readonly RenewRef[]) =>
      call(
        () => `renew ${names(refs)}`,
        () => backend.store.renew(refs),
        (answers: readonly RenewAnswer[]) => answers.map((answer) => answer.state).join(" "),
      ),
    release: (refs: readonly ClaimRef[]) =>
      call(
        () => `release ${names(refs)}`,
        () => backend.store.release(refs),
        (answers: readonly boolean[]) => answers.join(" "),
      ),
    look: (query: LookQuery) =>
      call(
        () => "look",
        () => backend.store.look(query),
        () => "…",
      ),
    onGrant(owner: string, listener: GrantListener): Unsubscribe {
      return backend.onGrant(owner, (refs) => {
        world.send(
          server,
          client,
          () => `granted ${names(refs)}`,
          () => listener(refs),
        );
      });
    },
    async close() {},
  };
}

function names(refs: readonly ClaimRef[]): string {
  return refs.map((ref) => `${ref.key} ${ref.id}`).join(", ");
}
