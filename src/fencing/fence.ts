/** What every fenced write begins with: the fence, what it is written to, and the error for one that is too old. */
import { checkKey, HoldfastError, invalid } from "../store/index.ts";

/**
 * Whose write it is: a lease, or what is known of one where only its fence came along, as with a job or a request from
 * another process.
 */
export interface Fenced {
  readonly fence: bigint;
  /** The key of the lease, which names the resource where nothing else does. */
  readonly key?: string;
  /** Throws when the lease is known to be over. A lease has it, and then a lost one is refused before anything is sent. */
  assertHeld?(): void;
}

/** What a mark is kept for. */
export interface FenceTarget {
  /** What is written to, 1 to 512 bytes. All writers must name it alike. Default: the key of the lease. */
  readonly resource?: string;
}

/**
 * The highest fence that storage takes: what fits into 64 bits with a sign, as a column of most databases has. Fences are
 * microseconds since 1970, or revisions of etcd times 2^20, so both stay far below for as long as there is software.
 */
export const MAX_FENCE = 2n ** 63n - 1n;

/** The write is refused: storage has seen a newer fence. Nothing of it was kept. */
export class StaleFenceError extends HoldfastError {
  override readonly name = "StaleFenceError";
  /** What the write came with. */
  readonly fence: bigint;
  /** The newest fence that the storage has seen, where it told. */
  readonly mark: bigint | undefined;

  constructor(resource: string, fence: bigint, mark?: bigint) {
    const newer = mark === undefined ? "a newer one" : String(mark);
    super(
      "STALE_FENCE",
      `The write to "${resource}" with fence ${fence} is refused, because the storage has seen ${newer}. The lock has another holder. Stop, and acquire the lock again.`,
      { key: resource },
    );
    this.fence = fence;
    this.mark = mark;
  }
}

/**
 * The fence to write with. Throws `LEASE_LOST` or `NOT_HELD` for a lease that is known to be over, and `INVALID_ARGUMENT`
 * for anything that is no fence.
 *
 * @example
 * await client.query("update report set body = $1, fence = $2 where id = $3 and fence <= $2", [body, fenceOf(lease), id]);
 */
export function fenceOf(lease: Fenced): bigint {
  if (typeof lease !== "object" || lease === null) {
    throw invalid(`lease must be a lease or an object with a fence, not ${String(lease)}.`);
  }
  lease.assertHeld?.();
  return checkFence(lease.fence);
}

export function checkFence(fence: bigint): bigint {
  if (typeof fence === "bigint" && fence >= 1n && fence <= MAX_FENCE) return fence;
  const hint = typeof fence === "string" ? " Use parseFence for a string." : "";
  throw invalid(
    `fence must be a bigint from 1 to ${MAX_FENCE}, not ${typeof fence} ${String(fence)}.${hint}`,
  );
}

/**
 * A fence that travelled as text: in JSON, in a header, or in the environment of a process. Decimal digits without a sign, a
 * point or zeros in front; anything else is `INVALID_ARGUMENT`.
 */
export function parseFence(text: string): bigint {
  if (typeof text === "string" && /^[1-9]\d{0,18}$/.test(text)) {
    const fence = BigInt(text);
    if (fence <= MAX_FENCE) return fence;
  }
  throw invalid(
    `fence must be a decimal number from 1 to ${MAX_FENCE}, not ${JSON.stringify(String(text).slice(0, 40))}.`,
  );
}

/** What is written to: as the call names it, or else as the lease does. */
export function resourceOf(lease: Fenced, resource: string | undefined): string {
  if (resource !== undefined) return checkKey(resource, "resource");
  if (lease.key !== undefined) return checkKey(lease.key, "lease.key");
  throw invalid("resource must be set, because a fence without a lease does not name its resource.");
}

/**
 * For storage that keeps the fence in the row itself: checks that a statement with `where … and fence <= …` found its row.
 * Throws STALE_FENCE if it changed none. The row has to exist, as only then no row means a newer fence.
 *
 * @example
 * const { rowCount } = await client.query("update … where id = $3 and fence <= $2", values);
 * expectFenced(rowCount, lease);
 */
export function expectFenced(
  changed: number | bigint | null | undefined,
  lease: Fenced,
  target: FenceTarget = {},
): void {
  const isCount = typeof changed === "bigint" || (typeof changed === "number" && Number.isInteger(changed));
  if (!isCount || changed < 0) {
    throw invalid(
      `changed must be how many rows the statement matched, not ${String(changed)}: rowCount of pg, affectedRows of mysql2, changes of SQLite.`,
    );
  }
  // The fence is told as it is: whether the lease is still held is not the question any more.
  if (Number(changed) === 0) throw new StaleFenceError(resourceOf(lease, target.resource), lease.fence);
}
