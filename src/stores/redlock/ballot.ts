/** Asks several nodes at once, and waits no longer than it takes to know. */
import type { Clock } from "../../platform/index.ts";
import { StoreUnavailableError } from "../../store/index.ts";

/** What a node answered, or why it did not. Undefined: it was not asked, or its answer was not waited for. */
export type Vote<T> = { readonly answer: T } | { readonly error: unknown } | undefined;

export interface Ballot<T> {
  readonly clock: Clock;
  /** How long a node may take before it counts as failed for this call. */
  readonly timeoutMs: number;
  /** Which nodes are asked. */
  readonly nodes: readonly number[];
  ask(node: number): Promise<T>;
  /** Whether the votes that are still out cannot change the outcome; called after each one. */
  isDecided(votes: readonly Vote<T>[], out: number): boolean;
  /** Told of answers that came when they were no longer waited for. */
  onLate?(node: number, answer: T): void;
}

/** The votes by node. Never rejects; no answer of a node, however late, is lost or goes unhandled. */
export function hold<T>(ballot: Ballot<T>): Promise<readonly Vote<T>[]> {
  return new Promise((resolve) => {
    const votes: Vote<T>[] = [];
    let out = ballot.nodes.length;
    let over = false;
    const finish = () => {
      over = true;
      timer.cancel();
      resolve(votes);
    };
    const timer = ballot.clock.setTimer(ballot.timeoutMs, () => {
      for (const node of ballot.nodes) votes[node] ??= { error: tooLate(ballot.timeoutMs) };
      finish();
    });
    const count = (node: number, vote: Vote<T>) => {
      if (over) return;
      votes[node] = vote;
      out--;
      if (out === 0 || ballot.isDecided(votes, out)) finish();
    };
    for (const node of ballot.nodes) {
      start(() => ballot.ask(node))
        .then((answer) => (over ? ballot.onLate?.(node, answer) : count(node, { answer })))
        // Also for an answer that cannot be made sense of.
        .catch((error: unknown) => count(node, { error }));
    }
    if (out === 0) finish();
  });
}

function tooLate(timeoutMs: number): StoreUnavailableError {
  return new StoreUnavailableError(`The server did not answer within ${timeoutMs} ms (nodeTimeoutMs).`);
}

async function start<T>(call: () => Promise<T>): Promise<T> {
  return call();
}

/** The answer in a vote, if there is one. */
export function answerOf<T>(vote: Vote<T>): T | undefined {
  return vote !== undefined && "answer" in vote ? vote.answer : undefined;
}
