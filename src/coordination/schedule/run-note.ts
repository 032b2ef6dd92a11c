/** How runs of a schedule are written down: what a note says, and what it is called. */
import type { ClaimRef, ClaimStatus } from "../../store/index.ts";

/** How a run of a schedule ended, or that it has not. */
export type RunOutcome =
  /** The body is at it. */
  | "running"
  /** The body returned. */
  | "completed"
  /** The body threw, without having been told to stop. */
  | "failed"
  /** The body was not called: an earlier run was not over yet (`overlap: "skip"`). */
  | "skipped"
  /** The body was told to stop, by `stop({ abort: true })` or by closing the client. */
  | "aborted"
  /** The replica died in the middle, or lost its lease there. */
  | "lost";

/** One run of a schedule, as any replica can read it. */
export interface RunRecord {
  /** The moment that the pattern names. */
  readonly tick: Date;
  /** Counts up where a run was taken over. */
  readonly attempt: number;
  /** The client that ran it. */
  readonly owner: string;
  readonly fence: bigint;
  /** On the runner's wall clock. */
  readonly startedAtMs: number;
  /** On the runner's wall clock. Absent while it runs, and where nobody was left to write it down. */
  readonly endedAtMs?: number;
  readonly outcome: RunOutcome;
  /** What the body threw, shortened, if it failed. */
  readonly error?: string;
}

/** Whether a claim is a note of a schedule, and no lease: notes stay for a day, whatever ttl leases may have. */
export function isScheduleNote({ key, id }: ClaimRef): boolean {
  return key.endsWith("#runs") && id.startsWith(":");
}

/** What is known of one attempt at a tick. */
export interface RunNote extends Omit<RunRecord, "tick"> {
  readonly tickMs: number;
  /** The fence of the tick's own claim, which tells attempts apart. */
  readonly claimFence: bigint;
  /** The ids of the claims that say so: of its start, of its end, or of both. */
  readonly ids: readonly string[];
}

/** How long an error's text may be in a note, in UTF-16 units: escaped and in UTF-8 it must fit with the rest. */
const MAX_ERROR = 250;

/** The id of the note that an attempt begins; without a fence, how those of all attempts begin. */
export function startId(tickMs: number, claimFence: bigint | ""): string {
  return `start:${tickMs}:${claimFence}`;
}

export function endId(tickMs: number, claimFence: bigint): string {
  return `end:${tickMs}:${claimFence}`;
}

/** What is written into a note. */
export interface NoteText {
  readonly attempt: number;
  readonly fence: bigint;
  readonly startedAtMs: number;
  readonly endedAtMs?: number;
  readonly outcome: RunOutcome;
  readonly error?: string;
}

export function writeText(text: NoteText): string {
  const { error } = text;
  return JSON.stringify({
    ...text,
    fence: String(text.fence),
    ...(error === undefined ? {} : { error: shortened(error) }),
  });
}

/** Reads a claim as a note. Undefined for whatever else somebody keeps under that key. */
export function readNote(claim: ClaimStatus): RunNote | undefined {
  const [, , tick, claimFence] = /^(start|end):(\d{1,16}):(\d{1,20})$/.exec(claim.id) ?? [];
  if (tick === undefined || claimFence === undefined) return undefined;
  const text = parsed(claim.info);
  if (text === undefined) return undefined;
  return {
    ...text,
    tickMs: Number(tick),
    claimFence: BigInt(claimFence),
    owner: claim.owner,
    ids: [claim.id],
  };
}

const outcomes: readonly unknown[] = ["running", "completed", "failed", "skipped", "aborted", "lost"];

function parsed(info: string): NoteText | undefined {
  try {
    const { attempt, fence, startedAtMs, endedAtMs, outcome, error } = JSON.parse(info) as Record<
      string,
      unknown
    >;
    if (!Number.isInteger(attempt) || typeof startedAtMs !== "number" || !outcomes.includes(outcome))
      return undefined;
    return {
      attempt: attempt as number,
      fence: BigInt(fence as string),
      startedAtMs,
      outcome: outcome as RunOutcome,
      ...(typeof endedAtMs === "number" ? { endedAtMs } : {}),
      ...(typeof error === "string" ? { error } : {}),
    };
  } catch {
    return undefined;
  }
}

/** One line of printable text. What JSON would write as six characters each is left out, so that the length is bounded. */
function shortened(error: string): string {
  const line = error.replace(/[\p{Cc}\p{Cs}\s]+/gu, " ").trim();
  return line.length > MAX_ERROR ? `${line.slice(0, MAX_ERROR - 1).replace(/\p{Cs}$/u, "")}…` : line;
}
