/** A partition as the record machine has it: what the script should answer, and whom it should tell. */
import {
  acquire,
  emptyRecord,
  isIdle,
  type LockRecord,
  type RecordClaim,
  release,
  renew,
  settle,
  type Turn,
} from "../../../src/core/record.ts";
import { describe } from "../../../src/core/record-view.ts";
import type { Operation } from "../../core/record-histories.ts";

export interface KeyOperation {
  readonly key: string;
  readonly operation: Operation;
}

/** A grant of which its owner is told. */
export interface Grant {
  readonly key: string;
  readonly id: string;
  readonly owner: string;
}

export interface BatchOutcome {
  readonly answers: readonly unknown[];
  readonly grants: readonly Grant[];
}

export class MachinePartition {
  readonly #records = new Map<string, LockRecord>();
  /** The highest fence that was ever given out. */
  #high = 0n;

  /** The records that have a claim. */
  get records(): ReadonlyMap<string, LockRecord> {
    return this.#records;
  }

  /** As after FLUSHALL. */
  forget(): void {
    this.#records.clear();
    this.#high = 0n;
  }

  apply(operations: readonly KeyOperation[], us: number): BatchOutcome {
    const grants: Grant[] = [];
    const answers = operations.map(({ key, operation }) => this.#answer(key, operation, us, grants));
    return { answers, grants };
  }

  #answer(key: string, operation: Operation, us: number, grants: Grant[]): unknown {
    const nowMs = Math.floor(us / 1_000);
    if (operation.does === "describe") {
      return describe(this.#records.get(key) ?? emptyRecord(), key, nowMs, operation.maxClaims);
    }
    const record = this.#records.get(key) ?? emptyRecord();
    this.#records.set(key, record);
    const stamp = BigInt(us) > this.#high ? BigInt(us) : this.#high + 1n;
    const turn: Turn = { nowMs, expiredMs: nowMs, stamp, granted: [] };
    // Whoever asks by this token has the answer to know it from.
    const { token } = operation.does === "acquire" ? operation.request : operation.ref;
    const tell = (granted: readonly RecordClaim[]) => {
      for (const claim of granted) {
        if (claim.token !== token) grants.push({ key, id: claim.id, owner: claim.owner });
      }
    };
    // Every operation begins with this. By itself, it shows claims as they were granted, before somebody else takes
    // them over in the same operation.
    settle(record, turn);
    tell(turn.granted.splice(0));
    const answer = ask(record, operation, turn);
    tell(turn.granted);
    if (record.fence > this.#high) this.#high = record.fence;
    if (isIdle(record)) this.#records.delete(key);
    return answer;
  }
}

function ask(record: LockRecord, operation: Exclude<Operation, { does: "describe" }>, turn: Turn): unknown {
  switch (operation.does) {
    case "acquire":
      return acquire(record, operation.request, operation.maxWaiters, turn);
    case "renew":
      return renew(record, operation.ref, turn);
    case "release":
      return release(record, operation.ref, turn);
  }
}
