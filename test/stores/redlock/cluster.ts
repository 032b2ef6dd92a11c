/** Several memory stores as the nodes of a quorum, in time that the test owns, each behind links that can fail. */
import {
  type ClaimRequest,
  type Clock,
  createLocks,
  type Locks,
  memoryStore,
  type QuorumMember,
  type Store,
  UNLIMITED,
} from "holdfast";
import { type QuorumOptions, quorumStore } from "holdfast/redlock";
import { type Fault, faultyStore, ManualClock, type StoreCall } from "holdfast/testing";

/** Decides the fate of each call from one client to one node. */
export type LinkPlan = (node: number, call: StoreCall) => Fault | undefined;

export class Cluster {
  readonly clock = new ManualClock();
  readonly members: QuorumMember[];
  /** Nodes that do not run: whatever arrives there is lost. */
  readonly down = new Set<number>();
  /** How far ahead each node's wall clock is. Fences follow it. */
  readonly #skewsMs: readonly number[];
  #names = 0;

  constructor(nodes: number, skewsMs: readonly number[] = []) {
    this.#skewsMs = skewsMs;
    this.members = Array.from({ length: nodes }, (_, node) => this.#member(node));
  }

  /** Whether the clocks of the nodes agree. */
  get isLevel(): boolean {
    return this.#skewsMs.every((skewMs) => skewMs === 0);
  }

  /** The node forgets everything. */
  empty(node: number): void {
    this.members[node] = this.#member(node);
  }

  /** Another instance of the store, as another process would have it. */
  store(options: QuorumOptions = {}, plan: LinkPlan = () => undefined): Store {
    const links = this.members.map((_, node) =>
      faultyStore(this.#current(node), (call) => plan(node, call), { clock: this.clock }),
    );
    return quorumStore(links, { clock: this.clock, ...options });
  }

  client(store: Store): Locks {
    return createLocks(store, { clock: this.clock, onWarning: () => {} });
  }

  /** Lets time pass until the promise settles, and returns what it came to. */
  async until<T>(promise: Promise<T>, limitMs = 60_000): Promise<T> {
    let settled = false;
    const mark = () => {
      settled = true;
    };
    promise.then(mark, mark);
    for (let waitedMs = 0; !settled && waitedMs <= limitMs; waitedMs += 5) await this.clock.advance(5);
    if (!settled) throw new Error(`Nothing came of it within ${limitMs} ms.`);
    return promise;
  }

  mutex(key: string, over: Partial<ClaimRequest> = {}): ClaimRequest {
    const name = ++this.#names;
    return {
      key,
      id: `id-${name}`,
      token: `token-${name}`,
      weight: 1,
      limit: 1,
      priority: 0,
      ttlMs: 3_000,
      wait: false,
      owner: `owner-${name}`,
      info: "",
      application: "",
      ...over,
    };
  }

  reader(key: string, over: Partial<ClaimRequest> = {}): ClaimRequest {
    return this.mutex(key, { limit: UNLIMITED, ...over });
  }

  /** What a node has of a key: "h" for each claim held and "w" for each that waits. */
  async at(node: number, key: string): Promise<string> {
    const { keys } = await (this.members[node] as QuorumMember).look({ key, maxClaims: 100 });
    const [status] = keys;
    return "h".repeat(status?.heldCount ?? 0) + "w".repeat(status?.waitingCount ?? 0);
  }

  async atAll(key: string): Promise<string[]> {
    return Promise.all(this.members.map((_, node) => this.at(node, key)));
  }

  #member(node: number): QuorumMember {
    const { clock } = this;
    const skewMs = this.#skewsMs[node] ?? 0;
    const skewed: Clock = {
      wallMs: () => clock.wallMs() + skewMs,
      monotonicMs: () => clock.monotonicMs(),
      setTimer: (delayMs, callback) => clock.setTimer(delayMs, callback),
    };
    return memoryStore({ clock: skewed });
  }

  /** The node as it is at the time of each call. Nobody closes it: other instances use it as well. */
  #current(node: number): QuorumMember {
    const now = () => (this.down.has(node) ? dead : (this.members[node] as QuorumMember));
    return {
      name: "node",
      durability: "ephemeral",
      counts: true,
      acquire: (request) => now().acquire(request),
      renew: (refs) => now().renew(refs),
      release: (refs) => now().release(refs),
      confirm: (ref, own, agreed) => now().confirm(ref, own, agreed),
      look: (query) => now().look(query),
      onGrant: (owner, listener) => now().onGrant(owner, listener),
      close: async () => {},
    };
  }
}

const silence = () => new Promise<never>(() => {});

const dead: QuorumMember = {
  name: "dead",
  durability: "ephemeral",
  counts: true,
  acquire: silence,
  renew: silence,
  release: silence,
  confirm: silence,
  look: silence,
  onGrant: () => () => {},
  close: async () => {},
};
