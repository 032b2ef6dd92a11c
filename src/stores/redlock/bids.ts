/**
 * What this instance remembers of the claims that were asked for through it. Losing it is safe: a claim that is renewed
 * through another instance is judged by what the nodes say.
 */
import { randomUUID } from "node:crypto";
import type { AgreedGrant, ClaimRef, ClaimRequest, HeldAnswer } from "../../store/index.ts";

/** How often the time away doubles. */
const MAX_DOUBLINGS = 4;

/** The nodes' grants on their way to become one. */
export interface Agreement {
  /** Since when its answer counts. */
  readonly sentMs: number;
  /** The nodes that were told of the grant. */
  readonly told: ReadonlySet<number>;
  readonly outcome: Promise<HeldAnswer>;
}

/** One claim, as it is spread over the nodes. */
export class Bid {
  readonly token: string | undefined;
  /** What was asked for, to ask again where a node has lost it. */
  request: ClaimRequest | undefined;
  /**
   * The token at each node. A hold that is given up never counts again: whatever is asked for afterwards has a token
   * of its own there, which the release of the former one cannot touch, however late it arrives.
   */
  readonly tokens: (string | undefined)[];
  /** The nodes that were left to others, where this claim is neither held nor queued for a while. */
  readonly away = new Set<number>();
  /** Until when it stays away from them. */
  returnAtMs = 0;
  /** How often it gave way. */
  yields = 0;
  /** Since when it has held some nodes, but too few. */
  minoritySinceMs: number | undefined;
  /** Between 1 and 2, drawn anew each time: equal contenders must not go on in step. */
  jitter = 1;
  /** What was handed out as held. */
  grant: AgreedGrant | undefined;
  /** The call that is making one grant of the nodes' grants. */
  agreement: Agreement | undefined;
  /** Counts calls and grants, so that a call can tell that the grant is younger than itself. */
  clock = 0;
  grantedAt = 0;
  /** The nodes that held it when last heard of, and those that have pushed a grant since. */
  heldOn = new Set<number>();
  readonly pushed = new Set<number>();
  /** Nodes that granted it when a majority was being made without them, each with its own fence. */
  readonly unconfirmed = new Map<number, bigint>();
  /** The nodes where something is being put right at the moment. */
  readonly repairing = new Set<number>();
  /** Whether the caller has released it. */
  over = false;
  expiresAtMs = 0;

  constructor(token: string | undefined, nodes: number) {
    this.token = token;
    this.tokens = Array.from({ length: nodes }, () => token);
  }

  /** How much longer than at first it stays away, and waits for the rest, after it gave way a few times. */
  get patience(): number {
    return 2 ** Math.min(this.yields, MAX_DOUBLINGS);
  }

  /** Gives the claim another token at a node, and returns the former one for the release. */
  renounce(node: number): string | undefined {
    const former = this.tokens[node];
    if (former !== undefined) this.tokens[node] = randomUUID();
    this.heldOn.delete(node);
    return former;
  }
}

export class Bids {
  readonly #nodes: number;
  readonly #byName = new Map<string, Bid>();
  #sweep: Iterator<[string, Bid]> | undefined;

  constructor(nodes: number) {
    this.#nodes = nodes;
  }

  get size(): number {
    return this.#byName.size;
  }

  /** The bid of an acquire call: the one there is, or a new one that takes its place. */
  open(request: ClaimRequest, nowMs: number): Bid {
    const known = this.#byName.get(nameOf(request));
    if (known !== undefined && known.token === request.token && !known.over) return known;
    return this.#add(request, nowMs);
  }

  /** The bid that a heartbeat or release is about. One that is not known here starts out as the nodes know it. */
  find(ref: ClaimRef): Bid | undefined {
    const known = this.#byName.get(nameOf(ref));
    return known?.token === ref.token ? known : undefined;
  }

  adopt(ref: ClaimRef, nowMs: number): Bid {
    // An administrator's, or one that another call has taken over.
    if (ref.token === undefined || this.#byName.has(nameOf(ref))) return new Bid(ref.token, this.#nodes);
    return this.#add(ref, nowMs);
  }

  /** The bid that a push is about, which names no token. */
  named(ref: ClaimRef): Bid | undefined {
    return this.#byName.get(nameOf(ref));
  }

  forget(ref: ClaimRef, bid: Bid): void {
    if (this.#byName.get(nameOf(ref)) === bid) this.#byName.delete(nameOf(ref));
  }

  clear(): void {
    this.#byName.clear();
  }

  #add(ref: ClaimRef, nowMs: number): Bid {
    // Two are looked at for each one that is added, so those that nobody released cannot pile up.
    this.#sweepOne(nowMs);
    this.#sweepOne(nowMs);
    const bid = new Bid(ref.token, this.#nodes);
    this.#byName.set(nameOf(ref), bid);
    return bid;
  }

  #sweepOne(nowMs: number): void {
    this.#sweep ??= this.#byName.entries();
    const next = this.#sweep.next();
    if (next.done) this.#sweep = undefined;
    else if (next.value[1].expiresAtMs < nowMs) this.#byName.delete(next.value[0]);
  }
}

/** Neither part can contain a line break. */
function nameOf(ref: ClaimRef): string {
  return `${ref.id}\n${ref.key}`;
}
