/**
 * The claims that were asked for through this instance. Losing them is safe: a claim that is renewed through another instance is judged by
 * the answers of the nodes.
 */
import { randomUUID } from "node:crypto";
import type { AgreedGrant, ClaimRef, ClaimRequest, HeldAnswer } from "../../store/index.ts";
import type { NodeAnswers } from "./answers.ts";
import type { Result } from "./nodes.ts";

/** The number of times that the backoff doubles. */
const MAX_DOUBLINGS = 4;

/** A confirmation of one grant by the nodes, under way. */
export interface Agreement {
  readonly sentMs: number;
  /** The nodes that were asked to confirm. */
  readonly told: ReadonlySet<number>;
  readonly outcome: Promise<HeldAnswer>;
}

/** One call about one claim: its requests to the nodes, and their answers. */
export interface Round {
  readonly ref: ClaimRef;
  readonly claim: QuorumClaim;
  /** The tokens that were sent. */
  readonly tokens: readonly (string | undefined)[];
  /** The claim's clock when the requests were sent. */
  readonly startedAt: number;
  readonly sentMs: number;
  /** The nodes that are believed to hold the claim. Their answers are awaited. */
  readonly awaited: readonly number[];
  answers: NodeAnswers;
  /** The answers as they came, with the errors of nodes that failed. */
  results: readonly Result<unknown>[];
  /** Answers that came after the others had decided. */
  readonly late: NodeAnswers;
  /** Whether a majority still holds the lease that was handed out. */
  proven: boolean;
}

/** One claim, as it is spread over the nodes. */
export class QuorumClaim {
  readonly token: string | undefined;
  /** The request, to repeat it at a node that has lost the claim. */
  request: ClaimRequest | undefined;
  /**
   * The token at each node. A hold that is given up gets another token, which a late release of the former hold cannot
   * touch.
   */
  readonly tokens: (string | undefined)[];
  /** The nodes that were left to other claims, and the time at which this claim returns. */
  readonly away = new Set<number>();
  returnAtMs = 0;
  /** The number of times that the claim gave way. */
  yields = 0;
  /** Since when the claim has held some nodes, but too few. */
  minoritySinceMs: number | undefined;
  /** Random, between 1 and 2: equal contenders must not stay in step. */
  jitter = 1;
  /** The grant that was handed out. */
  grant: AgreedGrant | undefined;
  agreement: Agreement | undefined;
  /** Counts calls and grants, so that a call can tell whether the grant is younger. */
  clock = 0;
  grantedAt = 0;
  /** The nodes that held the claim by their latest answers, and those that have pushed a grant since. */
  heldOn = new Set<number>();
  readonly pushed = new Set<number>();
  /** The own fences of nodes that granted the claim after the agreement began. */
  readonly unconfirmed = new Map<number, bigint>();
  /** The nodes with a repair under way. */
  readonly repairing = new Set<number>();
  /** Whether the caller has released the claim. */
  over = false;
  expiresAtMs = 0;

  constructor(token: string | undefined, nodes: number) {
    this.token = token;
    this.tokens = Array.from({ length: nodes }, () => token);
  }

  /** The factor by which the claim waits longer after it gave way a few times. */
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

export class QuorumClaims {
  readonly #nodes: number;
  readonly #byName = new Map<string, QuorumClaim>();
  #sweep: Iterator<[string, QuorumClaim]> | undefined;

  constructor(nodes: number) {
    this.#nodes = nodes;
  }

  get size(): number {
    return this.#byName.size;
  }

  /** The known claim of an acquire call, or a new one in its place. */
  open(request: ClaimRequest, nowMs: number): QuorumClaim {
    const known = this.#byName.get(nameOf(request));
    if (known !== undefined && known.token === request.token && !known.over) return known;
    return this.#add(request, nowMs);
  }

  /** The claim of a heartbeat or a release, if it is known. */
  find(ref: ClaimRef): QuorumClaim | undefined {
    const known = this.#byName.get(nameOf(ref));
    return known?.token === ref.token ? known : undefined;
  }

  adopt(ref: ClaimRef, nowMs: number): QuorumClaim {
    // A call of an administrator, or a claim that another call has taken over.
    if (ref.token === undefined || this.#byName.has(nameOf(ref)))
      return new QuorumClaim(ref.token, this.#nodes);
    return this.#add(ref, nowMs);
  }

  /** The claim of a push, which has no token. */
  named(ref: ClaimRef): QuorumClaim | undefined {
    return this.#byName.get(nameOf(ref));
  }

  forget(ref: ClaimRef, claim: QuorumClaim): void {
    if (this.#byName.get(nameOf(ref)) === claim) this.#byName.delete(nameOf(ref));
  }

  clear(): void {
    this.#byName.clear();
  }

  #add(ref: ClaimRef, nowMs: number): QuorumClaim {
    // Two checks for each claim that is added: expired claims cannot pile up.
    this.#sweepOne(nowMs);
    this.#sweepOne(nowMs);
    const claim = new QuorumClaim(ref.token, this.#nodes);
    this.#byName.set(nameOf(ref), claim);
    return claim;
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
