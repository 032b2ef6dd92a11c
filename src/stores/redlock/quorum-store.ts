import { randomBytes } from "node:crypto";
import { type Clock, systemClock } from "../../platform/index.ts";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  checkFraction,
  checkInteger,
  checkOptionNames,
  checkQuery,
  checkRenewRef,
  checkRequest,
  closedStore,
  commonFailure,
  DEFAULT_CLOCK_DRIFT,
  type Durability,
  type GrantListener,
  HoldfastError,
  invalid,
  type LookPage,
  type LookQuery,
  type QuorumMember,
  type RenewAnswer,
  type RenewRef,
  type Store,
  StoreUnavailableError,
  UNLIMITED,
  type Unsubscribe,
} from "../../store/index.ts";
import { answerOf, type Vote } from "./ballot.ts";
import { type Bid, Bids } from "./bids.ts";
import { Claims } from "./claims.ts";
import type { Hearing } from "./hearing.ts";
import { MergedView } from "./merged-view.ts";
import { Nodes, refAt } from "./nodes.ts";
import { Pushes } from "./pushes.ts";
import { type NodeAnswers, nodesIn } from "./tally.ts";

export interface QuorumOptions {
  /** For people, in messages and metrics. Default "quorum". */
  readonly name?: string;
  /** How long a node may take to answer before it counts as failed for that call. 1 to 60,000. Default 200. */
  readonly nodeTimeoutMs?: number;
  /** How long a claim keeps too few nodes before it gives way, about. 1 to 10,000. Default 20. */
  readonly backoffMs?: number;
  /** The difference in rate that is allowed between clocks, as in `createLocks`. 0 to 0.5. Default 0.001. */
  readonly clockDrift?: number;
  /** What the nodes together keep of their fences. Default "ephemeral". */
  readonly durability?: Durability;
  /** Where time comes from. Default: this machine. */
  readonly clock?: Clock;
  /** Where chance comes from, from 0 up to 1. Default: `Math.random`. */
  readonly random?: () => number;
}

/**
 * A store over several independent ones, of which a majority decides. For mutexes and reader-writer locks: a majority
 * cannot bound a semaphore, which is refused with `UNSUPPORTED`.
 *
 * Rejects with `STORE_UNAVAILABLE` when fewer than a majority answer.
 *
 * @example
 * const locks = createLocks(quorumStore([memoryStore(), memoryStore(), memoryStore()]));
 */
export function quorumStore(members: readonly QuorumMember[], options: QuorumOptions = {}): Store {
  checkOptionNames("quorumStore", options, {
    name: true,
    nodeTimeoutMs: true,
    backoffMs: true,
    clockDrift: true,
    durability: true,
    clock: true,
    random: true,
  });
  return new QuorumStore(members, options);
}

export const MAX_NODES = 99;

class QuorumStore implements Store {
  readonly name: string;
  readonly durability: Durability;
  readonly counts = false;
  readonly #nodes: Nodes;
  readonly #claims: Claims;
  readonly #bids: Bids;
  readonly #view: MergedView;
  readonly #pushes: Pushes;
  #closed = false;

  constructor(members: readonly QuorumMember[], options: QuorumOptions) {
    if (!Array.isArray(members)) throw invalid("members must be a list of stores.");
    checkInteger("the number of members", members.length, 1, MAX_NODES);
    if (new Set(members).size < members.length) throw invalid("members must be different stores.");
    const { clock = systemClock, random = Math.random, clockDrift = DEFAULT_CLOCK_DRIFT } = options;
    checkFraction("clockDrift", clockDrift, 0.5);
    const nodeTimeoutMs = checkInteger("nodeTimeoutMs", options.nodeTimeoutMs ?? 200, 1, 60_000);
    const backoffMs = checkInteger("backoffMs", options.backoffMs ?? 20, 1, 10_000);
    this.name = options.name ?? "quorum";
    this.durability = options.durability ?? "ephemeral";
    this.#nodes = new Nodes(members, clock, nodeTimeoutMs);
    this.#claims = new Claims({
      nodes: this.#nodes,
      clockDrift,
      backoffMs,
      name: randomBytes(9).toString("base64url"),
      random,
      onGranted: (owner, ref, node) => this.#pushes.tell(owner, [ref], node),
    });
    this.#bids = new Bids(members.length);
    this.#view = new MergedView(this.#nodes);
    this.#pushes = new Pushes(this.#nodes, this.#bids, backoffMs);
  }

  async acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    checkRequest(request);
    this.#checkOpen(request.key);
    if (request.limit !== 1 && request.limit !== UNLIMITED) throw semaphoreError(request.key);
    const bid = this.#bids.open(request, this.#now());
    bid.request ??= request;
    const hearing = this.#claims.begin(request, bid);
    bid.expiresAtMs = hearing.sentMs + request.ttlMs;
    const votes = await this.#nodes.poll(
      this.#nodes.all,
      (member, node) => member.acquire({ ...request, token: hearing.tokens[node] ?? request.token }),
      (cast, out) => this.#claims.isDecided(hearing, cast.map(answerOf), out),
      (node, answer) => this.#claims.late(hearing, node, answer),
    );
    const answers = votes.map(answerOf);
    if (bid.over) {
      await this.#nodes.release(request, tokensAt(hearing, nodesIn(answers, "held", "waiting")));
      throw new StoreUnavailableError(
        `The claim on "${request.key}" was released while acquire was under way.`,
        {
          key: request.key,
        },
      );
    }
    this.#claims.hear(hearing, answers, votes);
    return this.#judge(hearing, request, votes);
  }

  async renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    for (const ref of refs) checkRenewRef(ref);
    this.#checkOpen();
    if (refs.length === 0) return [];
    const hearings = refs.map((ref) => this.#claims.begin(ref, this.#bidOf(ref)));
    const answersTo = (votes: readonly Vote<readonly RenewAnswer[]>[], index: number) =>
      this.#nodes.all.map((node) => heardOf(answerOf(votes[node])?.[index]));
    const votes = await this.#nodes.poll(
      this.#nodes.all,
      (member, node) =>
        member.renew(hearings.map((hearing, index) => renewRefAt(hearing, refs, index, node))),
      (cast, out) =>
        hearings.every((hearing, index) => this.#claims.isDecided(hearing, answersTo(cast, index), out)),
      (node, answers) => {
        for (const [index, hearing] of hearings.entries()) {
          this.#claims.renewedLate(hearing, node, heardOf(answers[index]));
        }
      },
    );
    this.#nodes.requireMajority(votes, refs[0]?.key);
    const verdicts = await Promise.allSettled(
      hearings.map(async (hearing, index) => {
        const own = votes.map((vote) => voteOn(vote, index));
        this.#nodes.requireMajority(own, hearing.ref.key);
        this.#claims.hear(hearing, answersTo(votes, index), own);
        return this.#judgeRenewal(hearing);
      }),
    );
    const failure = commonFailure(verdicts);
    if (failure !== undefined) throw failure;
    return verdicts.map((verdict) =>
      verdict.status === "fulfilled" ? verdict.value : { state: "failed", error: verdict.reason },
    );
  }

  async release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    for (const ref of refs) checkRenewRef(ref);
    this.#checkOpen();
    if (refs.length === 0) return [];
    const bids = refs.map((ref) => this.#bids.find(ref));
    for (const bid of bids) if (bid !== undefined) bid.over = true;
    const tokenOf = (index: number, node: number) => {
      const bid = bids[index];
      return bid === undefined ? refs[index]?.token : bid.tokens[node];
    };
    const votes = await this.#nodes.poll(
      this.#nodes.all,
      (member, node) => member.release(refs.map((ref, index) => refAt(ref, tokenOf(index, node)))),
      (cast, out) =>
        refs.every((_, index) => {
          const removed = cast.filter((vote) => answerOf(vote)?.[index] === true).length;
          const answered = cast.filter((vote) => answerOf(vote) !== undefined).length;
          const { majority } = this.#nodes;
          return removed >= majority || (answered >= majority && removed + out < majority);
        }),
    );
    this.#nodes.requireMajority(votes, refs[0]?.key);
    return refs.map((ref, index) => {
      const bid = bids[index];
      if (bid !== undefined) this.#bids.forget(ref, bid);
      return this.#wasThere(votes, index, bid);
    });
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    this.#checkOpen();
    return this.#view.look(query);
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    return this.#pushes.listen(owner, listener);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#pushes.close();
    this.#bids.clear();
    await Promise.all(this.#nodes.members.map((member) => member.close()));
  }

  // Judging.

  async #judge(
    hearing: Hearing,
    request: ClaimRequest,
    votes: readonly Vote<AcquireAnswer>[],
  ): Promise<AcquireAnswer> {
    const { bid, answers } = hearing;
    const { majority } = this.#nodes;
    if (refusedFor(answers, "id-reused").length > 0) return { state: "refused", reason: "id-reused" };
    bid.request = request;
    this.#nodes.requireMajority(votes, request.key);
    const confirmed = this.#claims.confirmed(hearing);
    if (confirmed !== undefined) return confirmed;
    bid.grant = undefined;
    if (nodesIn(answers, "held").length >= majority) return this.#claims.agree(hearing);
    if (!request.wait) return this.#refuse(hearing, "contended");
    const full = refusedFor(answers, "queue-full");
    if (this.#nodes.members.length - full.length < majority) return this.#refuse(hearing, "queue-full");
    bid.away.clear();
    return this.#claims.wait(hearing);
  }

  /** Nothing is left behind, also not where the request may yet arrive. */
  async #refuse(hearing: Hearing, reason: "contended" | "queue-full"): Promise<AcquireAnswer> {
    const { ref, bid, answers } = hearing;
    const left = this.#nodes.all.filter((node) => answers[node]?.state !== "refused");
    const giving = this.#claims.giveUp(ref, bid, left);
    // A node that is silent is not waited for again.
    if (nodesIn(answers, "held", "waiting").length > 0) await giving;
    return { state: "refused", reason };
  }

  async #judgeRenewal(hearing: Hearing): Promise<RenewAnswer> {
    const { bid } = hearing;
    const confirmed = this.#claims.confirmed(hearing);
    if (confirmed !== undefined) return confirmed;
    if (bid.grant !== undefined || bid.over) return this.#claims.gone(hearing);
    if (this.#hasMajority(hearing)) return this.#claims.agree(hearing);
    if (this.#claims.isLost(hearing)) return this.#claims.gone(hearing);
    await this.#claims.rejoin(hearing);
    return this.#hasMajority(hearing) ? this.#claims.agree(hearing) : this.#claims.wait(hearing);
  }

  #hasMajority({ answers }: Hearing): boolean {
    return nodesIn(answers, "held").length >= this.#nodes.majority;
  }

  /** Nodes that are silent get the benefit of the doubt, and those that were left to others count as left. */
  #wasThere(votes: readonly Vote<readonly boolean[]>[], index: number, bid: Bid | undefined): boolean {
    const answers = this.#nodes.all.map((node) => answerOf(votes[node])?.[index]);
    const removed = answers.filter((answer) => answer === true).length;
    const open = this.#nodes.all.filter((node) => answers[node] !== false || bid?.away.has(node) === true);
    return removed > 0 && open.length >= this.#nodes.majority;
  }

  #bidOf(ref: RenewRef): Bid {
    const nowMs = this.#now();
    const bid = this.#bids.find(ref) ?? this.#bids.adopt(ref, nowMs);
    bid.expiresAtMs = Math.max(bid.expiresAtMs, nowMs + (ref.ttlMs ?? bid.request?.ttlMs ?? 0));
    return bid;
  }

  #now(): number {
    return this.#nodes.clock.monotonicMs();
  }

  #checkOpen(key?: string): void {
    if (this.#closed) throw closedStore(this.name, key);
  }
}

function refusedFor(answers: NodeAnswers, reason: string): readonly unknown[] {
  return answers.filter((answer) => answer?.state === "refused" && answer.reason === reason);
}

function renewRefAt({ tokens }: Hearing, refs: readonly RenewRef[], index: number, node: number): RenewRef {
  const ref = refs[index] as RenewRef;
  const named = refAt(ref, tokens[node]);
  return ref.ttlMs === undefined ? named : { ...named, ttlMs: ref.ttlMs };
}

/** What came of asking a node about one claim of the call. */
function voteOn(vote: Vote<readonly RenewAnswer[]>, index: number): Vote<unknown> {
  const answers = answerOf(vote);
  if (answers === undefined) return vote;
  const answer = answers[index];
  if (answer === undefined)
    return { error: new StoreUnavailableError("The server did not answer the heartbeat.") };
  return answer.state === "failed" ? { error: answer.error } : vote;
}

/** A node that could not answer for this claim has not been heard about it. */
function heardOf(answer: RenewAnswer | undefined): RenewAnswer | undefined {
  return answer?.state === "failed" ? undefined : answer;
}

function tokensAt({ tokens }: Hearing, nodes: readonly number[]): Map<number, string | undefined> {
  return new Map(nodes.map((node) => [node, tokens[node]]));
}

function semaphoreError(key: string): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `A majority cannot bound a semaphore ("${key}"). A limit of 2 on three servers would admit three holders, ` +
      "on two servers each. Use a single store for it.",
    { key },
  );
}
