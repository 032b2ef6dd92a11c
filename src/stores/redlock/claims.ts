/**
 * What the answers of the nodes come to for one claim, and what is put right along the way: fences agreed upon, minority
 * holds given up, nodes joined again. docs/decisions/0005-majority-locks.md has the arguments.
 */
import {
  type AcquireAnswer,
  type AgreedGrant,
  type ClaimRef,
  type GoneAnswer,
  type HeldAnswer,
  type RenewAnswer,
  StoreUnavailableError,
  type WaitingAnswer,
} from "../../store/index.ts";
import { answerOf, type Vote } from "./ballot.ts";
import type { Agreement, Bid } from "./bids.ts";
import type { Hearing } from "./hearing.ts";
import { type Nodes, refAt } from "./nodes.ts";
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
} from "./tally.ts";

export interface ClaimsOptions {
  readonly nodes: Nodes;
  readonly clockDrift: number;
  readonly backoffMs: number;
  /** By what the nodes know this store object. */
  readonly name: string;
  random(): number;
  /** Told that a node holds a waiting claim, where no push of the node's says so. */
  onGranted(owner: string, ref: ClaimRef, node: number): void;
}

/** How much longer the holder of the first node waits for the rest before it gives way, too. */
const LEADER_PATIENCE = 8;

/** How often an agreement is tried. Each attempt but the first knows what others have proposed meanwhile. */
const AGREE_ATTEMPTS = 5;

export class Claims {
  readonly #nodes: Nodes;
  readonly #options: ClaimsOptions;

  constructor(options: ClaimsOptions) {
    this.#nodes = options.nodes;
    this.#options = options;
  }

  begin(ref: ClaimRef, bid: Bid): Hearing {
    const awaited = [...new Set([...bid.pushed, ...bid.heldOn])];
    bid.pushed.clear();
    const sentMs = this.#nodes.clock.monotonicMs();
    return {
      ref,
      bid,
      tokens: [...bid.tokens],
      startedAt: ++bid.clock,
      sentMs,
      awaited,
      answers: [],
      votes: [],
      late: [],
      proven: false,
    };
  }

  /** Whether the nodes that have not answered yet cannot change what comes of it. */
  isDecided({ bid, awaited }: Hearing, answers: NodeAnswers, out: number): boolean {
    const { majority } = this.#nodes;
    const held = nodesIn(answers, "held");
    if (held.length + out < majority) {
      // The claim waits. But whether it stands in the way of others meanwhile is known to the nodes that hold it.
      const answered = answers.filter((answer) => answer !== undefined).length;
      return answered >= majority && awaited.every((node) => answers[node] !== undefined);
    }
    if (bid.grant !== undefined) return nodesWith(answers, bid.grant).length >= majority;
    if (held.length < majority) return false;
    // Asked for elsewhere, it has a grant already. Only some of these nodes may know that one.
    return bid.request !== undefined || nodesWith(answers, grantOf(answers, majority)).length >= majority;
  }

  /** Takes the answers in, but for those about a hold that has been given up while they were on their way. */
  hear(hearing: Hearing, answers: NodeAnswers, votes: readonly Vote<unknown>[]): void {
    const { bid, tokens } = hearing;
    hearing.votes = votes;
    hearing.answers = this.#nodes.all.map((node) =>
      tokens[node] === bid.tokens[node] ? answers[node] : undefined,
    );
    bid.heldOn = new Set(nodesIn(hearing.answers, "held"));
  }

  /** The lease that was handed out before, if a majority still holds it by that grant; undefined if it is lost. */
  confirmed(hearing: Hearing): HeldAnswer | undefined {
    const { bid, answers } = hearing;
    if (bid.grant === undefined) return undefined;
    const sure = nodesWith(answers, bid.grant);
    if (sure.length >= this.#nodes.majority) {
      hearing.proven = true;
      for (const node of this.#nodes.all) this.#repair(hearing, node);
      return this.#held(hearing, bid.grant, sure);
    }
    const unknown = this.#nodes.all.filter((node) => answers[node] === undefined);
    // The grant is younger than some of these answers, or the silent nodes may make up a majority.
    if (bid.grantedAt > hearing.startedAt || sure.length + unknown.length >= this.#nodes.majority) {
      throw this.#nodes.unavailable(sure.length, hearing.votes, hearing.ref.key);
    }
    return undefined;
  }

  /** Makes one grant of those that the nodes have made. Calls that come to this at the same time share the outcome. */
  async agree(hearing: Hearing): Promise<HeldAnswer> {
    const { bid } = hearing;
    bid.agreement ??= this.#agreement(hearing);
    const { outcome, told, sentMs: countedFromMs } = bid.agreement;
    const answer = await outcome;
    const { sentMs } = hearing;
    for (const node of nodesIn(hearing.answers, "held")) {
      // One that was told and did not hear of it is put right at a heartbeat.
      if (told.has(node)) continue;
      this.#putRight(hearing.ref, bid, node, ownFence(hearing.answers, node));
    }
    return { ...answer, expiresInMs: answer.expiresInMs - Math.max(0, sentMs - countedFromMs) };
  }

  #agreement(hearing: Hearing): Agreement {
    const told = new Set<number>();
    const outcome = this.#agree(hearing, told).finally(() => {
      hearing.bid.agreement = undefined;
    });
    return { sentMs: hearing.sentMs, told, outcome };
  }

  async #agree(hearing: Hearing, told: Set<number>): Promise<HeldAnswer> {
    const { ref, bid, tokens } = hearing;
    const { majority } = this.#nodes;
    let confirmed = await this.#confirm(hearing, told);
    for (let attempt = 2; attempt <= AGREE_ATTEMPTS && confirmed.length < majority; attempt++) {
      // Another instance may have been faster with a grant of its own. Then that one is in force, or about to be.
      const votes = await this.#nodes.poll(this.#nodes.all, (member, node) =>
        member.renew([refAt(ref, tokens[node])]).then(([answer]) => answer),
      );
      this.hear(hearing, votes.map(answerOf), votes);
      confirmed =
        nodesIn(hearing.answers, "held").length < majority ? [] : await this.#confirm(hearing, told);
    }
    if (bid.over || confirmed.length < majority) {
      throw this.#nodes.unavailable(confirmed.length, hearing.votes, ref.key);
    }
    const grant = grantOf(hearing.answers, majority);
    const answer = this.#held(hearing, grant, confirmed);
    bid.grant = grant;
    bid.grantedAt = ++bid.clock;
    bid.minoritySinceMs = undefined;
    bid.yields = 0;
    for (const [node, own] of bid.unconfirmed) this.#putRight(ref, bid, node, own);
    bid.unconfirmed.clear();
    return answer;
  }

  /**
   * Writes the grant to all nodes that hold the claim, waits for a majority, and returns those that have it. Also to those
   * that have it already: whoever proposed it there could still take it back.
   */
  async #confirm(hearing: Hearing, told: Set<number>): Promise<readonly number[]> {
    const { ref, bid, tokens, answers } = hearing;
    const { majority, members } = this.#nodes;
    const asked = nodesIn(answers, "held");
    // One node by itself has nobody to agree with.
    if (members.length === 1) return asked;
    told.clear();
    for (const node of asked) told.add(node);
    const grant = { ...grantOf(answers, majority), by: this.#options.name };
    const votes = await this.#nodes.poll(
      asked,
      (member, node) => member.confirm(refAt(ref, tokens[node]), ownFence(answers, node), grant),
      (cast) => cast.filter((vote) => answerOf(vote) === true).length >= majority,
    );
    hearing.votes = this.#nodes.all.map((node) => (asked.includes(node) ? votes[node] : hearing.votes[node]));
    return asked.filter((node) => answerOf(votes[node]) === true && tokens[node] === bid.tokens[node]);
  }

  /** The claim waits. A minority hold that has lasted too long is given up, so that somebody can have a majority. */
  wait(hearing: Hearing): WaitingAnswer {
    const { bid, answers } = hearing;
    const nowMs = this.#nodes.clock.monotonicMs();
    const held = nodesIn(answers, "held");
    if (held.length === 0) {
      bid.minoritySinceMs = undefined;
    } else if (bid.minoritySinceMs === undefined) {
      bid.minoritySinceMs = nowMs;
      bid.jitter = 1 + this.#options.random();
    } else if (nowMs >= this.#yieldAtMs(hearing)) {
      this.#giveWay(hearing, held, nowMs);
    }
    return this.#waiting(hearing, nowMs);
  }

  /** Asks again at the nodes that do not know the claim, unless it has left them to others. */
  async rejoin(hearing: Hearing): Promise<void> {
    const { bid, answers, ref } = hearing;
    const { request } = bid;
    if (request?.wait !== true) return;
    const nowMs = this.#nodes.clock.monotonicMs();
    const free = leads(answers) || nowMs >= bid.returnAtMs;
    const lost = nodesIn(answers, "gone").filter((node) => !isTaken(answers, node));
    const nodes = lost.filter((node) => free || !bid.away.has(node));
    if (nodes.length === 0) return;
    for (const node of nodes) bid.away.delete(node);
    const tokens = [...bid.tokens];
    const votes = await this.#nodes.poll(
      nodes,
      (member, node) => member.acquire({ ...request, token: tokens[node] ?? request.token }),
      undefined,
      (node, answer) => this.#late(ref, bid, node, tokens[node], answer),
    );
    const merged = [...answers];
    for (const node of nodes) {
      const answer = answerOf(votes[node]);
      merged[node] = answer;
      // Released while this was on its way, it must not stay until its ttl.
      if (bid.over && answer !== undefined) this.#late(ref, bid, node, tokens[node], answer);
    }
    this.hear(hearing, merged, hearing.votes);
  }

  /** The claim is over. What is left of it at single nodes is removed, so that it is in nobody's way. */
  gone(hearing: Hearing): GoneAnswer {
    const { ref, bid, answers } = hearing;
    bid.grant = undefined;
    void this.giveUp(ref, bid, [
      ...nodesIn(answers, "held", "waiting"),
      ...this.#nodes.all.filter((node) => answers[node] === undefined),
    ]);
    for (const answer of answers) {
      if (answer?.state === "gone" && answer.takenOverBy !== undefined) return answer;
    }
    return { state: "gone" };
  }

  /** Whether too few nodes know of the claim for it to be waiting. */
  isLost({ bid, answers }: Hearing): boolean {
    const present = this.#nodes.all.filter(
      (node) => answers[node]?.state !== "gone" || (bid.away.has(node) && !isTaken(answers, node)),
    );
    return present.length < this.#nodes.majority;
  }

  /** Removes the claim at these nodes, for good: see `Bid.tokens`. */
  async giveUp(ref: ClaimRef, bid: Bid, nodes: readonly number[]): Promise<void> {
    // An administrator who renews a claim has no business removing it.
    if (bid.token === undefined) return;
    return this.#nodes.release(ref, new Map(nodes.map((node) => [node, bid.renounce(node)])));
  }

  /** An acquire was answered when nobody waited for that any more. */
  late(hearing: Hearing, node: number, answer: AcquireAnswer): void {
    this.#late(hearing.ref, hearing.bid, node, hearing.tokens[node], answer);
  }

  #late(ref: ClaimRef, bid: Bid, node: number, token: string | undefined, answer: AcquireAnswer): void {
    if (answer.state === "refused") return;
    if (bid.over || bid.tokens[node] !== token) {
      void this.#nodes.release(ref, new Map([[node, token]]));
    } else if (answer.state === "held") {
      this.#putRight(ref, bid, node, answer.fence);
      this.#tell(ref, bid, node);
    }
  }

  /**
   * The node has said in its answer that it holds the claim, and will not push it (again). If nobody knew of this hold,
   * it would be in the way of others until the next heartbeat.
   */
  #tell(ref: ClaimRef, bid: Bid, node: number): void {
    if (bid.heldOn.has(node) || bid.pushed.has(node)) return;
    const owner = bid.grant === undefined ? bid.request?.owner : undefined;
    if (owner !== undefined) this.#options.onGranted(owner, { key: ref.key, id: ref.id }, node);
  }

  /** A heartbeat was answered when the other nodes had decided. What it tells is put right all the same. */
  renewedLate(hearing: Hearing, node: number, answer: RenewAnswer | undefined): void {
    const { bid, tokens } = hearing;
    if (bid.over || tokens[node] !== bid.tokens[node]) return;
    hearing.late[node] = answer;
    const queued = bid.grant === undefined && bid.request?.wait === true && !bid.away.has(node);
    if (hearing.proven || queued) this.#repair(hearing, node);
    // The push that made the client ask may have been about this very node.
    if (answer?.state === "held") this.#tell(hearing.ref, bid, node);
  }

  /** Brings a node to where the majority is. Nobody waits for that. */
  #repair({ ref, bid, answers, late }: Hearing, node: number): void {
    const answer = answers[node] ?? late[node];
    if (answer?.state === "held") this.#putRight(ref, bid, node, answer.fence, true);
    else if (answer?.state === "gone" && answer.takenOverBy === undefined) this.#repopulate(ref, bid, node);
  }

  /** Brings the grant to a node as a proposal, or, where a majority is known to have it, as the one in force. */
  #putRight(ref: ClaimRef, bid: Bid, node: number, own: bigint, inForce = false): void {
    const { grant } = bid;
    if (grant === undefined) bid.unconfirmed.set(node, own);
    if (grant === undefined || own === grant.fence || bid.repairing.has(node)) return;
    const token = bid.tokens[node];
    this.#inBackground(bid, node, async () => {
      await this.#nodes.poll([node], (member) =>
        member.confirm(refAt(ref, token), own, inForce ? grant : { ...grant, by: this.#options.name }),
      );
    });
  }

  /** A node that came back empty gets the claim again, so that losing another one costs nothing either. */
  #repopulate(ref: ClaimRef, bid: Bid, node: number): void {
    const { request } = bid;
    if (request === undefined || bid.repairing.has(node)) return;
    const token = bid.tokens[node];
    const arrived = (at: number, answer: AcquireAnswer) => {
      bid.repairing.delete(at);
      this.#late(ref, bid, at, token, answer);
    };
    this.#inBackground(bid, node, async () => {
      const again = { ...request, token: token ?? request.token, wait: true };
      const votes = await this.#nodes.poll([node], (member) => member.acquire(again), undefined, arrived);
      const answer = answerOf(votes[node]);
      if (answer !== undefined) arrived(node, answer);
    });
  }

  #inBackground(bid: Bid, node: number, work: () => Promise<void>): void {
    bid.repairing.add(node);
    void work().finally(() => bid.repairing.delete(node));
  }

  /**
   * Every node counted from after the call was sent, as the caller does. So what a majority promises at least is proven
   * from there, and nothing has to be taken off; but what has already gone by is no proof of anything.
   */
  #held(hearing: Hearing, grant: AgreedGrant, nodes: readonly number[]): HeldAnswer {
    const { ref, sentMs, answers } = hearing;
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

  #yieldAtMs({ bid, answers }: Hearing): number {
    const patience = leads(answers) ? LEADER_PATIENCE * bid.patience : 1;
    return (bid.minoritySinceMs ?? 0) + this.#options.backoffMs * bid.jitter * patience;
  }

  #giveWay({ ref, bid, answers }: Hearing, held: readonly number[], nowMs: number): void {
    bid.returnAtMs = nowMs + this.#options.backoffMs * (1 + this.#options.random()) * bid.patience;
    bid.yields++;
    bid.minoritySinceMs = undefined;
    for (const node of held) {
      bid.away.add(node);
      answers[node] = undefined;
    }
    void this.giveUp(ref, bid, held);
  }

  #waiting(hearing: Hearing, nowMs: number): WaitingAnswer {
    const { bid, answers } = hearing;
    const { majority } = this.#nodes;
    const known = answers.filter((answer) => answer?.state === "held" || answer?.state === "waiting");
    const retries = known.map((answer) => (answer.state === "waiting" ? answer.retryInMs : 0));
    let retryInMs = nthSmallest(retries, majority);
    if (bid.minoritySinceMs !== undefined) retryInMs = Math.min(retryInMs, this.#yieldAtMs(hearing) - nowMs);
    if (bid.away.size > 0) retryInMs = Math.min(retryInMs, bid.returnAtMs - nowMs);
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
