import type { Clock } from "../../platform/index.ts";
import { type ClaimRef, HoldfastError, type QuorumMember, StoreUnavailableError } from "../../store/index.ts";
import { hold, type Vote } from "./ballot.ts";
import { majorityOf } from "./tally.ts";

/** The nodes of a quorum, each behind a deadline. */
export class Nodes {
  readonly members: readonly QuorumMember[];
  readonly majority: number;
  readonly all: readonly number[];
  readonly clock: Clock;
  readonly #timeoutMs: number;

  constructor(members: readonly QuorumMember[], clock: Clock, timeoutMs: number) {
    this.members = members;
    this.majority = majorityOf(members.length);
    this.all = [...members.keys()];
    this.clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /** Asks these nodes. By default, waits for each of them up to the deadline. */
  poll<T>(
    nodes: readonly number[],
    ask: (member: QuorumMember, node: number) => Promise<T>,
    isDecided: (votes: readonly Vote<T>[], out: number) => boolean = () => false,
    onLate: (node: number, answer: T) => void = () => {},
  ): Promise<readonly Vote<T>[]> {
    return hold({
      clock: this.clock,
      timeoutMs: this.#timeoutMs,
      nodes,
      ask: (node) => ask(this.members[node] as QuorumMember, node),
      isDecided,
      onLate,
    });
  }

  /** Removes a claim at some nodes, each under the token that it had there. Resolves when they have or could not. */
  async release(ref: ClaimRef, tokens: ReadonlyMap<number, string | undefined>): Promise<void> {
    await this.poll([...tokens.keys()], (member, node) =>
      member.release([refAt(ref, tokens.get(node))]).then(() => undefined),
    );
  }

  /** Throws unless a majority has answered. Fewer know nothing: not even that somebody else holds the key. */
  requireMajority(votes: readonly Vote<unknown>[], key?: string): void {
    const answered = votes.filter((vote) => vote !== undefined && "answer" in vote).length;
    if (answered < this.majority) throw this.unavailable(answered, votes, key);
  }

  /** Too few agree. Where those that failed for good leave no majority, waiting for the others does not help. */
  unavailable(agreeing: number, votes: readonly Vote<unknown>[], key?: string): HoldfastError {
    const errors = votes.flatMap((vote) => (vote !== undefined && "error" in vote ? [vote.error] : []));
    const lasting = errors.filter((error) => error instanceof HoldfastError && !error.retryable);
    const [first] = lasting;
    if (first instanceof HoldfastError && this.members.length - lasting.length < this.majority) return first;
    const count = this.members.length;
    const reasons = this.all.flatMap((node) => this.#reasonOf(node, votes[node]));
    return new StoreUnavailableError(
      [
        `${agreeing} of ${count} servers gave the same answer, and ${this.majority} are needed.`,
        ...reasons,
      ].join(" "),
      { key, cause: errors.find((error) => !lasting.includes(error)) ?? first },
    );
  }

  /** Why a node failed, if it did. */
  #reasonOf(node: number, vote: Vote<unknown>): string[] {
    if (vote === undefined || !("error" in vote)) return [];
    const { error } = vote;
    const reason = error instanceof Error ? error.message : String(error);
    return [`Server ${node + 1} of ${this.members.length} (${this.members[node]?.name}): ${reason}`];
  }
}

export function refAt({ key, id }: ClaimRef, token: string | undefined): ClaimRef {
  return token === undefined ? { key, id } : { key, id, token };
}
