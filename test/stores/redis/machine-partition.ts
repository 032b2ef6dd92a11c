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
} from "../../../src/record/record.ts";
import { describe } from "../../../src/record/view.ts";
import type { Operation } from "../../record/histories.ts";

export interface KeyOperation {
  readonly key: string;
  readonly operation: Operation;
}

/** A grant of which its owner is told. */
export interface Grant {
  readonly key: string;
  readonly id: string;
  readonly owner: string;
  readonly fence: bigint;
}

export interface BatchOutcome {
  readonly answers: readonly unknown[];
  readonly grants: readonly Grant[];
}

/** A batch on its way. */
interface Call {
  readonly us: number;
  /** The highest fence that its client was answered. */
  readonly mark: bigint;
  /** The keys that it was about so far. */
  readonly touched: Set<string>;
  /** What all get who acquire a key that had no record when the batch came to it first. */
  fence: bigint | undefined;
}

export class MachinePartition {
  readonly #records = new Map<string, LockRecord>();
  /** The highest fence that was ever given out. */
  #high = 0n;
  /** The highest fence that each client was answered. It survives what the server forgets. */
  readonly #marks = new Map<number, bigint>();

  /** The records that have a claim. */
  get records(): ReadonlyMap<string, LockRecord> {
    return this.#records;
  }

  /** As after FLUSHALL. */
  forget(): void {
    this.#records.clear();
    this.#high = 0n;
  }

  /** As after a part of a lock was lost. Where its field is left, there still is a record, of nobody. */
  forgetClaims(key: string, isFieldLeft: boolean): void {
    if (isFieldLeft) this.#records.set(key, emptyRecord());
    else this.#records.delete(key);
  }

  apply(operations: readonly KeyOperation[], us: number, client: number): BatchOutcome {
    const grants: Grant[] = [];
    const call: Call = { us, mark: this.#marks.get(client) ?? 0n, touched: new Set(), fence: undefined };
    const answers = operations.map(({ key, operation }) => this.#answer(key, operation, call, grants));
    for (const [index, { operation }] of operations.entries()) {
      const { fence = 0n } = Object(answers[index]) as { fence?: bigint };
      if (operation.does !== "describe" && fence > (this.#marks.get(client) ?? 0n))
        this.#marks.set(client, fence);
    }
    return { answers, grants };
  }

  #answer(key: string, operation: Operation, call: Call, grants: Grant[]): unknown {
    const { us, mark } = call;
    const nowMs = Math.floor(us / 1_000);
    const isNew = !this.#records.has(key) && !call.touched.has(key);
    call.touched.add(key);
    if (operation.does === "describe") {
      return describe(this.#records.get(key) ?? emptyRecord(), key, nowMs, operation.maxClaims);
    }
    const record = this.#records.get(key) ?? emptyRecord();
    this.#records.set(key, record);
    let high = this.#high;
    if (mark > high) high = mark;
    let stamp = BigInt(us) > high ? BigInt(us) : high + 1n;
    if (isNew && operation.does === "acquire") {
      call.fence ??= stamp;
      stamp = call.fence;
    }
    const granted: RecordClaim[] = [];
    const turn: Turn = { nowMs, expiredMs: nowMs, stamp, granted };
    // Whoever asks by this token has the answer to know it from.
    const { token } = operation.does === "acquire" ? operation.request : operation.ref;
    const tell = (claims: readonly RecordClaim[]) => {
      for (const claim of claims) {
        if (claim.token !== token) {
          grants.push({ key, id: claim.id, owner: claim.owner, fence: claim.fence });
        }
      }
    };
    // Every operation begins with this. By itself, it shows claims as they were granted, before somebody else takes
    // them over in the same operation.
    settle(record, turn);
    tell(granted.splice(0));
    const answer = ask(record, operation, turn);
    tell(granted);
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
