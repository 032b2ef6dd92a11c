/** Brings single nodes to where the majority is: gives up holds, writes grants, and asks again for claims that a node has lost. */
import type { AcquireAnswer, ClaimRef, RenewAnswer } from "../../store/index.ts";
import { answerOf, type Nodes, refAt } from "./nodes.ts";
import type { QuorumClaim, Round } from "./quorum-claim.ts";

export interface RepairOptions {
  readonly nodes: Nodes;
  /** The name of this store object at the nodes. */
  readonly name: string;
  /** Receives a grant that a node will not push. */
  readonly onGranted: (owner: string, ref: ClaimRef, node: number) => void;
}

export class Repair {
  readonly #nodes: Nodes;
  readonly #options: RepairOptions;

  constructor(options: RepairOptions) {
    this.#nodes = options.nodes;
    this.#options = options;
  }

  /** Removes the claim at these nodes for good: see `QuorumClaim.tokens`. */
  async giveUp(ref: ClaimRef, claim: QuorumClaim, nodes: readonly number[]): Promise<void> {
    // An administrator who renews a claim must not remove it.
    if (claim.token === undefined) return;
    return this.#nodes.release(ref, new Map(nodes.map((node) => [node, claim.renounce(node)])));
  }

  /** Handles an answer to an acquire that was no longer awaited. */
  acquiredLate(
    ref: ClaimRef,
    claim: QuorumClaim,
    node: number,
    token: string | undefined,
    answer: AcquireAnswer,
  ): void {
    if (answer.state === "refused") return;
    if (claim.over || claim.tokens[node] !== token) {
      void this.#nodes.release(ref, new Map([[node, token]]));
    } else if (answer.state === "held") {
      this.confirmAt(ref, claim, node, answer.fence);
      this.#tell(ref, claim, node);
    }
  }

  /** Handles an answer to a heartbeat that came after the other nodes had decided. */
  renewedLate(round: Round, node: number, answer: RenewAnswer | undefined): void {
    const { claim, tokens } = round;
    if (claim.over || tokens[node] !== claim.tokens[node]) return;
    round.late[node] = answer;
    const queued = claim.grant === undefined && claim.request?.wait === true && !claim.away.has(node);
    if (round.proven || queued) this.repair(round, node);
    // The push that caused the heartbeat may have come from this node.
    if (answer?.state === "held") this.#tell(round.ref, claim, node);
  }

  repair({ ref, claim, answers, late }: Round, node: number): void {
    const answer = answers[node] ?? late[node];
    if (answer?.state === "held") this.confirmAt(ref, claim, node, answer.fence, true);
    else if (answer?.state === "gone" && answer.takenOverBy === undefined)
      this.#acquireAgain(ref, claim, node);
  }

  /** Writes the grant to a node: as a proposal, or as the one in force if a majority is known to have it. */
  confirmAt(ref: ClaimRef, claim: QuorumClaim, node: number, own: bigint, inForce = false): void {
    const { grant } = claim;
    if (grant === undefined) claim.unconfirmed.set(node, own);
    if (grant === undefined || own === grant.fence || claim.repairing.has(node)) return;
    const token = claim.tokens[node];
    const agreed = inForce ? grant : { ...grant, by: this.#options.name };
    this.#inBackground(claim, node, async () => {
      await this.#nodes.poll([node], (member) => member.confirm(refAt(ref, token), own, agreed));
    });
  }

  /** A node that came back empty gets the claim again, so that the loss of another node costs nothing. */
  #acquireAgain(ref: ClaimRef, claim: QuorumClaim, node: number): void {
    const { request } = claim;
    if (request === undefined || claim.repairing.has(node)) return;
    const token = claim.tokens[node];
    const again = { ...request, token: token ?? request.token, wait: true };
    const onAnswer = (at: number, answer: AcquireAnswer) => {
      claim.repairing.delete(at);
      this.acquiredLate(ref, claim, at, token, answer);
    };
    this.#inBackground(claim, node, async () => {
      const results = await this.#nodes.poll([node], (member) => member.acquire(again), undefined, onAnswer);
      const answer = answerOf(results[node]);
      if (answer !== undefined) onAnswer(node, answer);
    });
  }

  #inBackground(claim: QuorumClaim, node: number, work: () => Promise<void>): void {
    claim.repairing.add(node);
    void work().finally(() => claim.repairing.delete(node));
  }

  /** A hold that the client does not know of would block others until the next heartbeat. */
  #tell(ref: ClaimRef, claim: QuorumClaim, node: number): void {
    if (claim.heldOn.has(node) || claim.pushed.has(node)) return;
    const owner = claim.grant === undefined ? claim.request?.owner : undefined;
    if (owner !== undefined) this.#options.onGranted(owner, { key: ref.key, id: ref.id }, node);
  }
}
