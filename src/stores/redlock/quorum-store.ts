import { randomBytes } from "node:crypto";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  checkInteger,
  checkQuery,
  checkRenewRef,
  checkRequest,
  closedStore,
  commonFailure,
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
import { type NodeAnswers, nodesIn } from "./answers.ts";
import { MergedView } from "./merged-view.ts";
import { answerOf, Nodes, type Result, refAt } from "./nodes.ts";
import { checkOptions, MAX_NODES, type QuorumOptions } from "./options.ts";
import { Quorum } from "./quorum.ts";
import { type QuorumClaim, QuorumClaims, type Round } from "./quorum-claim.ts";
import { Repair } from "./repair.ts";
import { Wake } from "./wake.ts";

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
  return new QuorumStore(members, options);
}

class QuorumStore implements Store {
  readonly name: string;
  readonly durability: Durability;
  readonly counts = false;
  readonly #nodes: Nodes;
  readonly #repair: Repair;
  readonly #quorum: Quorum;
  readonly #claims: QuorumClaims;
  readonly #view: MergedView;
  readonly #wake: Wake;
  #closed = false;

  constructor(members: readonly QuorumMember[], options: QuorumOptions) {
    if (!Array.isArray(members)) throw invalid("members must be a list of stores.");
    checkInteger("the number of members", members.length, 1, MAX_NODES);
    if (new Set(members).size < members.length) throw invalid("members must be different stores.");
    const { clock, random, clockDrift, nodeTimeoutMs, backoffMs, name, durability } = checkOptions(options);
    this.name = name;
    this.durability = durability;
    const nodes = new Nodes(members, clock, nodeTimeoutMs);
    const proposer = randomBytes(9).toString("base64url");
    this.#nodes = nodes;
    this.#repair = new Repair({
      nodes,
      name: proposer,
      onGranted: (owner, ref, node) => this.#wake.tell(owner, [ref], node),
    });
    this.#quorum = new Quorum({ nodes, repair: this.#repair, clockDrift, backoffMs, name: proposer, random });
    this.#claims = new QuorumClaims(members.length);
    this.#view = new MergedView(this.#nodes);
    this.#wake = new Wake(this.#nodes, this.#claims, backoffMs);
  }

  async acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    checkRequest(request);
    this.#checkOpen(request.key);
    if (request.limit !== 1 && request.limit !== UNLIMITED) throw semaphoreError(request.key);
    const claim = this.#claims.open(request, this.#now());
    claim.request ??= request;
    const round = this.#quorum.begin(request, claim);
    claim.expiresAtMs = round.sentMs + request.ttlMs;
    const results = await this.#nodes.poll(
      this.#nodes.all,
      (member, node) => member.acquire({ ...request, token: round.tokens[node] ?? request.token }),
      (cast, out) => this.#quorum.isDecided(round, cast.map(answerOf), out),
      (node, answer) => this.#repair.acquiredLate(request, claim, node, round.tokens[node], answer),
    );
    const answers = results.map(answerOf);
    if (claim.over) {
      await this.#nodes.release(request, tokensAt(round, nodesIn(answers, "held", "waiting")));
      throw new StoreUnavailableError(
        `The claim on "${request.key}" was released while acquire was under way.`,
        {
          key: request.key,
        },
      );
    }
    this.#quorum.note(round, answers, results);
    return this.#decide(round, request, results);
  }

  async renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    for (const ref of refs) checkRenewRef(ref);
    this.#checkOpen();
    if (refs.length === 0) return [];
    const rounds = refs.map((ref) => this.#quorum.begin(ref, this.#claimOf(ref)));
    const answersTo = (results: readonly Result<readonly RenewAnswer[]>[], index: number) =>
      this.#nodes.all.map((node) => unlessFailed(answerOf(results[node])?.[index]));
    const results = await this.#nodes.poll(
      this.#nodes.all,
      (member, node) => member.renew(rounds.map((round, index) => renewRefAt(round, refs, index, node))),
      (cast, out) =>
        rounds.every((round, index) => this.#quorum.isDecided(round, answersTo(cast, index), out)),
      (node, answers) => {
        for (const [index, round] of rounds.entries()) {
          this.#repair.renewedLate(round, node, unlessFailed(answers[index]));
        }
      },
    );
    this.#nodes.requireMajority(results, refs[0]?.key);
    const settled = await Promise.allSettled(
      rounds.map(async (round, index) => {
        const own = results.map((result) => resultOf(result, index));
        this.#nodes.requireMajority(own, round.ref.key);
        this.#quorum.note(round, answersTo(results, index), own);
        return this.#decideRenewal(round);
      }),
    );
    const failure = commonFailure(settled);
    if (failure !== undefined) throw failure;
    return settled.map((each) =>
      each.status === "fulfilled" ? each.value : { state: "failed", error: each.reason },
    );
  }

  async release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    for (const ref of refs) checkRenewRef(ref);
    this.#checkOpen();
    if (refs.length === 0) return [];
    const claims = refs.map((ref) => this.#claims.find(ref));
    for (const claim of claims) if (claim !== undefined) claim.over = true;
    const tokenOf = (index: number, node: number) => {
      const claim = claims[index];
      return claim === undefined ? refs[index]?.token : claim.tokens[node];
    };
    const results = await this.#nodes.poll(
      this.#nodes.all,
      (member, node) => member.release(refs.map((ref, index) => refAt(ref, tokenOf(index, node)))),
      (cast, out) =>
        refs.every((_, index) => {
          const removed = cast.filter((result) => answerOf(result)?.[index] === true).length;
          const answered = cast.filter((result) => answerOf(result) !== undefined).length;
          const { majority } = this.#nodes;
          return removed >= majority || (answered >= majority && removed + out < majority);
        }),
    );
    this.#nodes.requireMajority(results, refs[0]?.key);
    return refs.map((ref, index) => {
      const claim = claims[index];
      if (claim !== undefined) this.#claims.forget(ref, claim);
      return this.#wasThere(results, index, claim);
    });
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    this.#checkOpen();
    return this.#view.look(query);
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    return this.#wake.listen(owner, listener);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#wake.close();
    this.#claims.clear();
    await Promise.all(this.#nodes.members.map((member) => member.close()));
  }

  async #decide(
    round: Round,
    request: ClaimRequest,
    results: readonly Result<AcquireAnswer>[],
  ): Promise<AcquireAnswer> {
    const { claim, answers } = round;
    const { majority } = this.#nodes;
    if (refusedFor(answers, "id-reused").length > 0) return { state: "refused", reason: "id-reused" };
    claim.request = request;
    this.#nodes.requireMajority(results, request.key);
    const confirmed = this.#quorum.confirmed(round);
    if (confirmed !== undefined) return confirmed;
    claim.grant = undefined;
    if (nodesIn(answers, "held").length >= majority) return this.#quorum.agree(round);
    if (!request.wait) return this.#refuse(round, "contended");
    const full = refusedFor(answers, "queue-full");
    if (this.#nodes.members.length - full.length < majority) return this.#refuse(round, "queue-full");
    claim.away.clear();
    return this.#quorum.wait(round);
  }

  /** Leaves nothing behind, also at nodes that the request may still reach. */
  async #refuse(round: Round, reason: "contended" | "queue-full"): Promise<AcquireAnswer> {
    const { ref, claim, answers } = round;
    const left = this.#nodes.all.filter((node) => answers[node]?.state !== "refused");
    const giving = this.#repair.giveUp(ref, claim, left);
    // Does not wait again for silent nodes.
    if (nodesIn(answers, "held", "waiting").length > 0) await giving;
    return { state: "refused", reason };
  }

  async #decideRenewal(round: Round): Promise<RenewAnswer> {
    const { claim } = round;
    const confirmed = this.#quorum.confirmed(round);
    if (confirmed !== undefined) return confirmed;
    if (claim.grant !== undefined || claim.over) return this.#quorum.gone(round);
    if (this.#hasMajority(round)) return this.#quorum.agree(round);
    if (this.#quorum.isLost(round)) return this.#quorum.gone(round);
    await this.#quorum.rejoin(round);
    return this.#hasMajority(round) ? this.#quorum.agree(round) : this.#quorum.wait(round);
  }

  #hasMajority({ answers }: Round): boolean {
    return nodesIn(answers, "held").length >= this.#nodes.majority;
  }

  /** Silent nodes count as holding the claim, and so do those that were left to others. */
  #wasThere(
    results: readonly Result<readonly boolean[]>[],
    index: number,
    claim: QuorumClaim | undefined,
  ): boolean {
    const answers = this.#nodes.all.map((node) => answerOf(results[node])?.[index]);
    const removed = answers.filter((answer) => answer === true).length;
    const open = this.#nodes.all.filter((node) => answers[node] !== false || claim?.away.has(node) === true);
    return removed > 0 && open.length >= this.#nodes.majority;
  }

  #claimOf(ref: RenewRef): QuorumClaim {
    const nowMs = this.#now();
    const claim = this.#claims.find(ref) ?? this.#claims.adopt(ref, nowMs);
    claim.expiresAtMs = Math.max(claim.expiresAtMs, nowMs + (ref.ttlMs ?? claim.request?.ttlMs ?? 0));
    return claim;
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

function renewRefAt({ tokens }: Round, refs: readonly RenewRef[], index: number, node: number): RenewRef {
  const ref = refs[index] as RenewRef;
  const named = refAt(ref, tokens[node]);
  return ref.ttlMs === undefined ? named : { ...named, ttlMs: ref.ttlMs };
}

/** The result of a node for one claim of the call. */
function resultOf(result: Result<readonly RenewAnswer[]>, index: number): Result<unknown> {
  const answers = answerOf(result);
  if (answers === undefined) return result;
  const answer = answers[index];
  if (answer === undefined)
    return { error: new StoreUnavailableError("The server did not answer the heartbeat.") };
  return answer.state === "failed" ? { error: answer.error } : result;
}

/** A node that failed for this claim counts as silent. */
function unlessFailed(answer: RenewAnswer | undefined): RenewAnswer | undefined {
  return answer?.state === "failed" ? undefined : answer;
}

function tokensAt({ tokens }: Round, nodes: readonly number[]): Map<number, string | undefined> {
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
