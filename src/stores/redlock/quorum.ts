/**
 * Decides on one claim by the answers of the nodes: agrees on fences, gives up minority holds, joins nodes again. docs/decisions has
 * the arguments.
 */
import {
  type AgreedGrant,
  type ClaimRef,
  type GoneAnswer,
  type HeldAnswer,
  StoreUnavailableError,
  type WaitingAnswer,
} from "../../store/index.ts";
import {
  grantOf,
  heldBy,
  isTaken,
  leads,
  type NodeAnswers,
  nodesIn,
  nodesWith,
  nthLargest,
  nthSmallest,
  ownFence,
} from "./answers.ts";
import { answerOf, type Nodes, type Result, refAt } from "./nodes.ts";
import type { Agreement, QuorumClaim, Round } from "./quorum-claim.ts";
import type { Repair } from "./repair.ts";

export interface QuorumRulesOptions {
  readonly nodes: Nodes;
  readonly repair: Repair;
  readonly clockDrift: number;
  readonly backoffMs: number;
  /** The name of this store object at the nodes. */
  readonly name: string;
  random(): number;
}

/** The factor by which the holder of the first node waits longer before it gives way. */
const LEADER_PATIENCE = 8;

/** The number of attempts to agree. Each after the first knows the proposals of others. */
const AGREE_ATTEMPTS = 5;

export class Quorum {
  readonly #nodes: Nodes;
  readonly #repair: Repair;
  readonly #options: QuorumRulesOptions;

  constructor(options: QuorumRulesOptions) {
    this.#nodes = options.nodes;
    this.#repair = options.repair;
    this.#options = options;
  }

  begin(ref: ClaimRef, claim: QuorumClaim): Round {
    const awaited = [...new Set([...claim.pushed, ...claim.heldOn])];
    claim.pushed.clear();
    const sentMs = this.#nodes.clock.monotonicMs();
    return {
      ref,
      claim,
      tokens: [...claim.tokens],
      startedAt: ++claim.clock,
      sentMs,
      awaited,
      answers: [],
      results: [],
      late: [],
      proven: false,
    };
  }

  /** Whether the missing answers cannot change the decision. */
  isDecided({ claim, awaited }: Round, answers: NodeAnswers, out: number): boolean {
    const { majority } = this.#nodes;
    const held = nodesIn(answers, "held");
    if (held.length + out < majority) {
      // The claim waits. Only the nodes that hold it know whether it blocks others.
      const answered = answers.filter((answer) => answer !== undefined).length;
      return answered >= majority && awaited.every((node) => answers[node] !== undefined);
    }
    if (claim.grant !== undefined) return nodesWith(answers, claim.grant).length >= majority;
    if (held.length < majority) return false;
    // A claim from another instance has a grant already, which only some of these nodes may have.
    return claim.request !== undefined || nodesWith(answers, grantOf(answers, majority)).length >= majority;
  }

  /** Notes the answers, except those about a hold that was given up meanwhile. */
  note(round: Round, answers: NodeAnswers, results: readonly Result<unknown>[]): void {
    const { claim, tokens } = round;
    round.results = results;
    round.answers = this.#nodes.all.map((node) =>
      tokens[node] === claim.tokens[node] ? answers[node] : undefined,
    );
    claim.heldOn = new Set(nodesIn(round.answers, "held"));
  }

  /** The lease that was handed out, if a majority still has that grant; undefined if it is lost. */
  confirmed(round: Round): HeldAnswer | undefined {
    const { claim, answers } = round;
    if (claim.grant === undefined) return undefined;
    const sure = nodesWith(answers, claim.grant);
    if (sure.length >= this.#nodes.majority) {
      round.proven = true;
      for (const node of this.#nodes.all) this.#repair.repair(round, node);
      return this.#held(round, claim.grant, sure);
    }
    const unknown = this.#nodes.all.filter((node) => answers[node] === undefined);
    // The grant is younger than some answers, or the silent nodes may complete a majority.
    if (claim.grantedAt > round.startedAt || sure.length + unknown.length >= this.#nodes.majority) {
      throw this.#nodes.unavailable(sure.length, round.results, round.ref.key);
    }
    return undefined;
  }

  /** Agrees on one of the grants that the nodes have made. Concurrent calls share the outcome. */
  async agree(round: Round): Promise<HeldAnswer> {
    const { claim } = round;
    claim.agreement ??= this.#agreement(round);
    const { outcome, told, sentMs: countedFromMs } = claim.agreement;
    const answer = await outcome;
    const { sentMs } = round;
    for (const node of nodesIn(round.answers, "held")) {
      // A heartbeat repairs a node that was told and did not receive it.
      if (told.has(node)) continue;
      this.#repair.confirmAt(round.ref, claim, node, ownFence(round.answers, node));
    }
    return { ...answer, expiresInMs: answer.expiresInMs - Math.max(0, sentMs - countedFromMs) };
  }

  #agreement(round: Round): Agreement {
    const told = new Set<number>();
    const outcome = this.#agree(round, told).finally(() => {
      round.claim.agreement = undefined;
    });
    return { sentMs: round.sentMs, told, outcome };
  }

  async #agree(round: Round, told: Set<number>): Promise<HeldAnswer> {
    const { ref, claim, tokens } = round;
    const { majority } = this.#nodes;
    let confirmed = await this.#confirm(round, told);
    for (let attempt = 2; attempt <= AGREE_ATTEMPTS && confirmed.length < majority; attempt++) {
      // Another instance may have proposed another grant, which is in force or soon will be.
      const results = await this.#nodes.poll(this.#nodes.all, (member, node) =>
        member.renew([refAt(ref, tokens[node])]).then(([answer]) => answer),
      );
      this.note(round, results.map(answerOf), results);
      confirmed = nodesIn(round.answers, "held").length < majority ? [] : await this.#confirm(round, told);
    }
    if (claim.over || confirmed.length < majority) {
      throw this.#nodes.unavailable(confirmed.length, round.results, ref.key);
    }
    const grant = grantOf(round.answers, majority);
    const answer = this.#held(round, grant, confirmed);
    claim.grant = grant;
    claim.grantedAt = ++claim.clock;
    claim.minoritySinceMs = undefined;
    claim.yields = 0;
    for (const [node, own] of claim.unconfirmed) this.#repair.confirmAt(ref, claim, node, own);
    claim.unconfirmed.clear();
    return answer;
  }

  /**
   * Writes the grant to all nodes that hold the claim, also to those that have it: their proposer could still take it back. Returns
   * the nodes that confirmed, once they are a majority.
   */
  async #confirm(round: Round, told: Set<number>): Promise<readonly number[]> {
    const { ref, claim, tokens, answers } = round;
    const { majority, members } = this.#nodes;
    const asked = nodesIn(answers, "held");
    // A single node has no other to agree with.
    if (members.length === 1) return asked;
    told.clear();
    for (const node of asked) told.add(node);
    const grant = { ...grantOf(answers, majority), by: this.#options.name };
    const results = await this.#nodes.poll(
      asked,
      (member, node) => member.confirm(refAt(ref, tokens[node]), ownFence(answers, node), grant),
      (cast) => cast.filter((result) => answerOf(result) === true).length >= majority,
    );
    round.results = this.#nodes.all.map((node) =>
      asked.includes(node) ? results[node] : round.results[node],
    );
    return asked.filter((node) => answerOf(results[node]) === true && tokens[node] === claim.tokens[node]);
  }

  /** The claim waits. A minority hold that lasted too long is given up, so that another claim can get a majority. */
  wait(round: Round): WaitingAnswer {
    const { claim, answers } = round;
    const nowMs = this.#nodes.clock.monotonicMs();
    const held = nodesIn(answers, "held");
    if (held.length === 0) {
      claim.minoritySinceMs = undefined;
    } else if (claim.minoritySinceMs === undefined) {
      claim.minoritySinceMs = nowMs;
      claim.jitter = 1 + this.#options.random();
    } else if (nowMs >= this.#yieldAtMs(round)) {
      this.#giveWay(round, held, nowMs);
    }
    return this.#waiting(round, nowMs);
  }

  /** Asks again at the nodes that do not know the claim, except those left to others. */
  async rejoin(round: Round): Promise<void> {
    const { claim, answers, ref } = round;
    const { request } = claim;
    if (request?.wait !== true) return;
    const nowMs = this.#nodes.clock.monotonicMs();
    const free = leads(answers) || nowMs >= claim.returnAtMs;
    const lost = nodesIn(answers, "gone").filter((node) => !isTaken(answers, node));
    const nodes = lost.filter((node) => free || !claim.away.has(node));
    if (nodes.length === 0) return;
    for (const node of nodes) claim.away.delete(node);
    const tokens = [...claim.tokens];
    const results = await this.#nodes.poll(
      nodes,
      (member, node) => member.acquire({ ...request, token: tokens[node] ?? request.token }),
      undefined,
      (node, answer) => this.#repair.acquiredLate(ref, claim, node, tokens[node], answer),
    );
    const merged = [...answers];
    for (const node of nodes) {
      const answer = answerOf(results[node]);
      merged[node] = answer;
      // Without this, a claim released meanwhile would stay until its ttl.
      if (claim.over && answer !== undefined)
        this.#repair.acquiredLate(ref, claim, node, tokens[node], answer);
    }
    this.note(round, merged, round.results);
  }

  /** The claim is over. Its remains at single nodes are removed, so that they block no other claim. */
  gone(round: Round): GoneAnswer {
    const { ref, claim, answers } = round;
    claim.grant = undefined;
    void this.#repair.giveUp(ref, claim, [
      ...nodesIn(answers, "held", "waiting"),
      ...this.#nodes.all.filter((node) => answers[node] === undefined),
    ]);
    for (const answer of answers) {
      if (answer?.state === "gone" && answer.takenOverBy !== undefined) return answer;
    }
    return { state: "gone" };
  }

  /** Whether too few nodes have the claim for it to wait. */
  isLost({ claim, answers }: Round): boolean {
    const present = this.#nodes.all.filter(
      (node) => answers[node]?.state !== "gone" || (claim.away.has(node) && !isTaken(answers, node)),
    );
    return present.length < this.#nodes.majority;
  }

  /**
   * Every node counts from after the call was sent, as the caller does. So the promise of a majority is proven from there, and is
   * void once the time has passed.
   */
  #held(round: Round, grant: AgreedGrant, nodes: readonly number[]): HeldAnswer {
    const { ref, sentMs, answers } = round;
    const promised = nodes.map((node) => heldBy(answers, node)?.expiresInMs ?? 0);
    const expiresInMs = nthLargest(promised, this.#nodes.majority);
    const elapsedMs = this.#nodes.clock.monotonicMs() - sentMs;
    if (expiresInMs * (1 - this.#options.clockDrift) <= elapsedMs) {
      throw new StoreUnavailableError(
        `A majority granted "${ref.key}", but only after its ttl had passed. Try again.`,
        {
          key: ref.key,
        },
      );
    }
    return { state: "held", fence: grant.fence, acquiredAtMs: grant.acquiredAtMs, expiresInMs };
  }

  #yieldAtMs({ claim, answers }: Round): number {
    const patience = leads(answers) ? LEADER_PATIENCE * claim.patience : 1;
    return (claim.minoritySinceMs ?? 0) + this.#options.backoffMs * claim.jitter * patience;
  }

  #giveWay({ ref, claim, answers }: Round, held: readonly number[], nowMs: number): void {
    claim.returnAtMs = nowMs + this.#options.backoffMs * (1 + this.#options.random()) * claim.patience;
    claim.yields++;
    claim.minoritySinceMs = undefined;
    for (const node of held) {
      claim.away.add(node);
      answers[node] = undefined;
    }
    void this.#repair.giveUp(ref, claim, held);
  }

  #waiting(round: Round, nowMs: number): WaitingAnswer {
    const { claim, answers } = round;
    const { majority } = this.#nodes;
    const known = answers.filter((answer) => answer?.state === "held" || answer?.state === "waiting");
    const retries = known.map((answer) => (answer.state === "waiting" ? answer.retryInMs : 0));
    let retryInMs = nthSmallest(retries, majority);
    if (claim.minoritySinceMs !== undefined) retryInMs = Math.min(retryInMs, this.#yieldAtMs(round) - nowMs);
    if (claim.away.size > 0) retryInMs = Math.min(retryInMs, claim.returnAtMs - nowMs);
    const expiries = known.map((answer) => answer.expiresInMs);
    return {
      state: "waiting",
      expiresInMs: nthLargest(expiries, Math.min(majority, expiries.length)),
      retryInMs: Math.max(0, retryInMs),
      // biome-ignore lint/complexity/useMathMinMax: these are bigints.
      fence: known.reduce((highest, { fence }) => (fence > highest ? fence : highest), 0n),
    };
  }
}
