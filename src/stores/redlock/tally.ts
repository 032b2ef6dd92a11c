/** Counts what the nodes say of one claim. */
import type { AcquireAnswer, AgreedGrant, HeldAnswer, RenewAnswer } from "../../store/index.ts";

/** By node. Undefined: it failed, was too late, or its answer is about a hold that has been given up since. */
export type NodeAnswers = (AcquireAnswer | RenewAnswer | undefined)[];

export function majorityOf(nodes: number): number {
  return Math.floor(nodes / 2) + 1;
}

export function nodesIn(answers: NodeAnswers, ...states: readonly string[]): number[] {
  return [...answers.entries()].flatMap(([node, answer]) =>
    answer !== undefined && states.includes(answer.state) ? [node] : [],
  );
}

export function heldBy(answers: NodeAnswers, node: number): HeldAnswer | undefined {
  const answer = answers[node];
  return answer?.state === "held" ? answer : undefined;
}

/** The nodes that hold the claim by this very grant. */
export function nodesWith(answers: NodeAnswers, grant: AgreedGrant): number[] {
  return nodesIn(answers, "held").filter((node) => heldBy(answers, node)?.fence === grant.fence);
}

/**
 * The grant to agree upon: the one that a majority has agreed upon already, or else the highest. Any majority of holds
 * includes a node that had confirmed the fence before it gave this claim its own, so the highest is above that one. And
 * whoever else agrees about this claim at the same time, and hears of the highest, proposes the same.
 */
export function grantOf(answers: NodeAnswers, majority: number): AgreedGrant {
  const held = answers.filter((answer): answer is HeldAnswer => answer?.state === "held");
  const agreed = held.find(({ fence }) => held.filter((other) => other.fence === fence).length >= majority);
  if (agreed !== undefined) return { fence: agreed.fence, acquiredAtMs: agreed.acquiredAtMs };
  const highest = held.reduce((a, b) => (b.fence > a.fence ? b : a));
  return { fence: highest.fence, acquiredAtMs: highest.acquiredAtMs };
}

/** The nth largest; 0 where there are fewer. What n nodes promise at least. */
export function nthLargest(values: readonly number[], n: number): number {
  return [...values].sort((a, b) => b - a)[n - 1] ?? 0;
}

/** The nth smallest, or the largest where there are fewer. When n nodes have come round. */
export function nthSmallest(values: readonly number[], n: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(n, sorted.length) - 1] ?? 0;
}

/** Whether the claim holds the first node that answered. Of those who hold a minority each, that one goes on. */
export function leads(answers: NodeAnswers): boolean {
  return answers.find((answer) => answer !== undefined)?.state === "held";
}

export function isTaken(answers: NodeAnswers, node: number): boolean {
  const answer = answers[node];
  return answer?.state === "gone" && answer.takenOverBy !== undefined;
}

export function ownFence(answers: NodeAnswers, node: number): bigint {
  return heldBy(answers, node)?.fence ?? 0n;
}
