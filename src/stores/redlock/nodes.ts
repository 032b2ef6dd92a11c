/** The nodes of a quorum, each behind a deadline. */
import type { Clock } from "../../platform/index.ts";
import { type ClaimRef, HoldfastError, type QuorumMember, StoreUnavailableError } from "../../store/index.ts";

/** The answer of a node or its error. Undefined: the node was not asked, or its answer was not awaited. */
export type Result<T> = { readonly answer: T } | { readonly error: unknown } | undefined;

export function answerOf<T>(result: Result<T>): T | undefined {
  return result !== undefined && "answer" in result ? result.answer : undefined;
}

export class Nodes {
  readonly members: readonly QuorumMember[];
  readonly majority: number;
  readonly all: readonly number[];
  readonly clock: Clock;
  readonly #timeoutMs: number;

  constructor(members: readonly QuorumMember[], clock: Clock, timeoutMs: number) {
    this.members = members;
    this.majority = Math.floor(members.length / 2) + 1;
    this.all = [...members.keys()];
    this.clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Asks these nodes at once. Resolves to the results by node when all have answered, when `isDecided` returns true, or at the deadline.
   * Never rejects. `onLate` receives answers that were no longer awaited.
   */
  poll<T>(
    nodes: readonly number[],
    ask: (member: QuorumMember, node: number) => Promise<T>,
    isDecided: (results: readonly Result<T>[], out: number) => boolean = () => false,
    onLate: (node: number, answer: T) => void = () => {},
  ): Promise<readonly Result<T>[]> {
    return new Promise((resolve) => {
      const results: Result<T>[] = [];
      let out = nodes.length;
      let over = false;
      const finish = () => {
        over = true;
        timer.cancel();
        resolve(results);
      };
      const timer = this.clock.setTimer(this.#timeoutMs, () => {
        for (const node of nodes) results[node] ??= { error: tooLate(this.#timeoutMs) };
        finish();
      });
      const note = (node: number, result: Result<T>) => {
        if (over) return;
        results[node] = result;
        out--;
        if (out === 0 || isDecided(results, out)) finish();
      };
      for (const node of nodes) {
        start(() => ask(this.members[node] as QuorumMember, node))
          .then((answer) => (over ? onLate(node, answer) : note(node, { answer })))
          .catch((error: unknown) => note(node, { error }));
      }
      if (out === 0) finish();
    });
  }

  /** Removes a claim at some nodes, each under the token that it had there. Resolves when they have or could not. */
  async release(ref: ClaimRef, tokens: ReadonlyMap<number, string | undefined>): Promise<void> {
    await this.poll([...tokens.keys()], (member, node) =>
      member.release([refAt(ref, tokens.get(node))]).then(() => undefined),
    );
  }

  /** Throws unless a majority has answered. */
  requireMajority(results: readonly Result<unknown>[], key?: string): void {
    const answered = results.filter((result) => result !== undefined && "answer" in result).length;
    if (answered < this.majority) throw this.unavailable(answered, results, key);
  }

  /** The error of a call on which too few nodes agree. Not retryable if nodes that failed for good leave no majority. */
  unavailable(agreeing: number, results: readonly Result<unknown>[], key?: string): HoldfastError {
    const errors = results.flatMap((result) =>
      result !== undefined && "error" in result ? [result.error] : [],
    );
    const lasting = errors.filter((error) => error instanceof HoldfastError && !error.retryable);
    const [first] = lasting;
    if (first instanceof HoldfastError && this.members.length - lasting.length < this.majority) return first;
    const count = this.members.length;
    const reasons = this.all.flatMap((node) => this.#reasonOf(node, results[node]));
    const summary = `${agreeing} of ${count} servers gave the same answer, and ${this.majority} are needed.`;
    const cause = errors.find((error) => !lasting.includes(error)) ?? first;
    return new StoreUnavailableError([summary, ...reasons].join(" "), { key, cause });
  }

  #reasonOf(node: number, result: Result<unknown>): string[] {
    if (result === undefined || !("error" in result)) return [];
    const { error } = result;
    const reason = error instanceof Error ? error.message : String(error);
    return [`Server ${node + 1} of ${this.members.length} (${this.members[node]?.name}): ${reason}`];
  }
}

export function refAt({ key, id }: ClaimRef, token: string | undefined): ClaimRef {
  return token === undefined ? { key, id } : { key, id, token };
}

function tooLate(timeoutMs: number): StoreUnavailableError {
  return new StoreUnavailableError(`The server did not answer within ${timeoutMs} ms (nodeTimeoutMs).`);
}

async function start<T>(call: () => Promise<T>): Promise<T> {
  return call();
}
