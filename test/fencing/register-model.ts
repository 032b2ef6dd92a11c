/**
 * Compares everything that guards writes with the simplest thing that does: a register with a mark, written by one after the
 * other. Writers come in random batches, each batch all at once, and some change their mind at the end.
 */
import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { HoldfastError } from "holdfast";
import { expect } from "vitest";

export interface RegisterWrite {
  readonly resource: string;
  readonly fence: bigint;
  readonly value: string;
  /** Whether the write is to be undone at its end. */
  readonly rollsBack: boolean;
}

export interface WrittenValue {
  readonly fence: bigint;
  readonly value: string;
}

export interface Register {
  readonly runs: number;
  /** Whether a write can be undone at its end. */
  readonly rollsBack: boolean;
  /** Writes behind the guard, and adds what it wrote to the resource's history in the same step. */
  write(write: RegisterWrite): Promise<void>;
  /** The history of a resource, in the order in which it came about. */
  written(resource: string): Promise<readonly WrittenValue[]>;
}

/** The register that everybody understands. */
class NaiveRegister {
  mark = 0n;

  write(fence: bigint): boolean {
    if (fence < this.mark) return false;
    this.mark = fence;
    return true;
  }
}

/** PostgreSQL's. */
const SERIALIZATION_FAILURE = "40001";

/** So high that a double cannot tell neighbours apart. */
const BASE = 2n ** 60n;

export async function checkRegister(register: Register): Promise<void> {
  const write = fc.record({ fence: fc.integer({ min: 1, max: 6 }), rollsBack: fc.boolean() });
  const batches = fc.array(fc.array(write, { minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(batches, async (history) => {
      const resource = randomUUID();
      const naive = new NaiveRegister();
      let known = 0;
      for (const [index, batch] of history.entries()) {
        const writes = batch.map(({ fence, rollsBack }, place) => ({
          resource,
          fence: BASE + BigInt(fence),
          value: `${index}.${place}`,
          rollsBack: rollsBack && register.rollsBack,
        }));
        const before = naive.mark;
        const accepted = await Promise.all(writes.map((each) => attempt(register, each)));
        const added = (await register.written(resource)).slice(known);
        known += added.length;

        // The accepted writes are in the history, in an order that the naive register accepts as well.
        const committed = writes.filter((each, place) => accepted[place] === true && !each.rollsBack);
        expect(added.map(({ value }) => value).sort()).toEqual(committed.map(({ value }) => value).sort());
        for (const { fence } of added) expect(naive.write(fence), `${fence} after ${naive.mark}`).toBe(true);

        // Nobody is refused but by a newer one that has written, in an earlier batch or in this one.
        for (const [place, { fence }] of writes.entries()) {
          if (accepted[place] === false) expect(naive.mark).toBeGreaterThan(fence);
          if (fence < before) expect(accepted[place]).toBe(false);
        }
        // With nobody else about, it decides as the naive one does.
        if (writes.length === 1) expect(accepted[0]).toBe(writes[0]!.fence >= before);
      }
    }),
    { numRuns: register.runs },
  );
}

/** Whether the write was accepted. What the database wants run again is run again. */
async function attempt(register: Register, write: RegisterWrite): Promise<boolean> {
  for (;;) {
    try {
      await register.write(write);
      return true;
    } catch (error) {
      // A transaction may also be undone at a statement behind the guard, or at its commit.
      if ((error as { code?: unknown }).code === SERIALIZATION_FAILURE) continue;
      if (!(error instanceof HoldfastError)) throw error;
      if (error.code === "STALE_FENCE") return false;
      if (!error.retryable) throw error;
    }
  }
}
