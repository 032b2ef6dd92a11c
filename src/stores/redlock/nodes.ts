import {
  type ClaimRef,
  type Clock,
  HoldfastError,
  type QuorumMember,
  StoreUnavailableError,
} from "../../core/index.ts";
import { errorsOf, hold, type Vote } from "./ballot.ts";
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
    if (answered < this.majority) throw this.unavailable(answered, errorsOf(votes), key);
  }

  unavailable(agreeing: number, errors: readonly unknown[], key?: string): HoldfastError {
    const lasting = errors.find((error) => error instanceof HoldfastError && !error.retryable);
    const passing = errors.find((error) => !(error instanceof HoldfastError) || error.retryable);
    if (lasting instanceof HoldfastError && passing === undefined) return lasting;
    return new StoreUnavailableError(
      `${agreeing} of ${this.members.length} servers have answered alike, and it takes ${this.majority}.`,
      { key, cause: passing ?? lasting },
    );
  }
}

export function refAt({ key, id }: ClaimRef, token: string | undefined): ClaimRef {
  return token === undefined ? { key, id } : { key, id, token };
}
