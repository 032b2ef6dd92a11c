/** Two transactions, an older holder's and a newer one's, in every order that matters; the same for each SQL database. */
import { randomUUID } from "node:crypto";
import type { HoldfastError } from "holdfast";
import { describe, expect, test } from "vitest";
import { until } from "../engines/engine.ts";

export interface FencedTransaction {
  /** Reads something, so that a transaction with a snapshot has one from here on. */
  look(): Promise<unknown>;
  guard(resource: string, fence: bigint): Promise<void>;
  /** Whether the server has it wait for another transaction. */
  waits(): Promise<boolean>;
  commit(): Promise<unknown>;
  rollback(): Promise<unknown>;
}

export interface Level {
  readonly name: string;
  /** Which transactions that another one has overtaken are undone by the server, and have to be run again to learn why. */
  readonly undone: "all" | "those with a snapshot" | "none";
}

export type Begin = (level: Level) => Promise<FencedTransaction>;

const OLDER = 2n ** 53n;
const NEWER = OLDER + 1n;

/** Numbers that a double cannot tell apart, so that every driver is seen to keep them. */
export function describeInterleavings(levels: readonly Level[], begin: Begin): void {
  describe.each(levels)("at $name", (level) => {
    /** A resource, with the mark that somebody left there or without. */
    async function newResource(mark: bigint | undefined): Promise<string> {
      const resource = randomUUID();
      if (mark === undefined) return resource;
      expect(await outcome(run(resource, mark))).toBe("committed");
      return resource;
    }

    async function run(resource: string, fence: bigint): Promise<void> {
      const transaction = await begin(level);
      try {
        await transaction.guard(resource, fence);
        await transaction.commit();
      } catch (error) {
        await transaction.rollback();
        throw error;
      }
    }

    /** A guard that has to wait, and how it is then. */
    async function waiting(transaction: FencedTransaction, resource: string, fence: bigint) {
      const guarding = outcome(transaction.guard(resource, fence));
      await until("the guard waits", () => transaction.waits());
      return { guarding };
    }

    /** An overtaken guard is stale at once, or must run again and is stale then. */
    async function expectStale(said: string, resource: string, undone: boolean): Promise<void> {
      expect(said).toBe(undone ? "again" : "STALE_FENCE");
      expect(await outcome(run(resource, OLDER))).toBe("STALE_FENCE");
    }

    describe.each([
      ["a resource with a mark", 1n],
      ["a resource that nobody has written to", undefined],
    ])("%s", (_, mark) => {
      test("the older one waits for the newer one's commit, and is refused", async () => {
        const resource = await newResource(mark);
        const [newer, older] = [await begin(level), await begin(level)];
        await newer.guard(resource, NEWER);
        const { guarding } = await waiting(older, resource, OLDER);
        await newer.commit();
        const said = await guarding;
        await older.rollback();
        await expectStale(said, resource, level.undone === "all");
      });

      test("a newer one that rolls back leaves no mark, and the older one goes on", async () => {
        const resource = await newResource(mark);
        const [newer, older] = [await begin(level), await begin(level)];
        await newer.guard(resource, NEWER);
        const { guarding } = await waiting(older, resource, OLDER);
        await newer.rollback();
        expect(await guarding).toBe("committed");
        await older.commit();
        expect(await outcome(run(resource, OLDER))).toBe("committed");
      });

      test("the newer one waits for the older one's commit, and comes after it", async () => {
        const resource = await newResource(mark);
        const [older, newer] = [await begin(level), await begin(level)];
        await older.guard(resource, OLDER);
        const { guarding } = await waiting(newer, resource, NEWER);
        await older.commit();
        const said = await guarding;
        const undone = level.undone === "all";
        expect(said).toBe(undone ? "again" : "committed");
        await (undone ? newer.rollback() : newer.commit());
        expect(await outcome(run(resource, NEWER))).toBe("committed");
        expect(await outcome(run(resource, OLDER))).toBe("STALE_FENCE");
      });

      test("a snapshot from before the newer one's commit does not let the older one pass", async () => {
        const resource = await newResource(mark);
        const older = await begin(level);
        await older.look();
        expect(await outcome(run(resource, NEWER))).toBe("committed");
        const said = await outcome(older.guard(resource, OLDER));
        await older.rollback();
        await expectStale(said, resource, level.undone !== "none");
      });
    });

    test("the same holder writes as often as it likes", async () => {
      const resource = await newResource(undefined);
      for (let write = 0; write < 3; write++) expect(await outcome(run(resource, NEWER))).toBe("committed");
      expect(await outcome(run(resource, OLDER))).toBe("STALE_FENCE");
      expect(await outcome(run(await newResource(1n), OLDER))).toBe("committed");
    });
  });
}

/** The outcome of a guard or a transaction, in one word. */
export async function outcome(running: Promise<unknown>): Promise<string> {
  try {
    await running;
    return "committed";
  } catch (error) {
    const { code, retryable } = error as HoldfastError;
    return retryable ? "again" : (code ?? String(error));
  }
}
