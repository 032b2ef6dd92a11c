/** What the command says when it fails, and what it ends with. */
import { HoldfastError } from "../store/index.ts";
import { writeDuration } from "./duration.ts";
import { exitCodeOf, exitCodes } from "./exit-codes.ts";

/** A failure that the command itself found, with the exit code that it means. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: number;
  /** A second line: what to do about it. */
  readonly hint: string | undefined;

  constructor(exitCode: number, message: string, hint?: string) {
    super(message);
    this.exitCode = exitCode;
    this.hint = hint;
  }
}

export function usageError(message: string, hint?: string): CliError {
  return new CliError(exitCodes.usage, message, hint);
}

export interface Failure {
  readonly exitCode: number;
  /** Lines for the standard error. */
  readonly lines: readonly string[];
}

/** What the options of the library are called on the command line. */
const flags: Readonly<Record<string, string>> = {
  ttlMs: "--ttl",
  waitMs: "--wait",
  maxHoldMs: "--max-hold",
  requestTimeoutMs: "--timeout",
};

/** The library's message with flags in place of its options: `(requestTimeoutMs 5000)` is `(--timeout 5s)`. */
export function inFlags(message: string): string {
  return message.replace(/\b([a-zA-Z]+Ms)\b(?: (\d+)\b)?/g, (text, name: string, ms?: string) => {
    const flag = flags[name];
    if (flag === undefined) return text;
    return ms === undefined ? flag : `${flag} ${writeDuration(Number(ms))}`;
  });
}

/** A stack trace is shown for a defect of Holdfast only. */
export function describeFailure(error: unknown): Failure {
  if (error instanceof CliError) {
    const hint = error.hint === undefined ? [] : [`  ${error.hint}`];
    return { exitCode: error.exitCode, lines: [`holdfast: ${error.message}`, ...hint] };
  }
  if (error instanceof HoldfastError) {
    const lines = [`holdfast: ${error.code}: ${inFlags(error.message)}`];
    for (const cause of causesOf(error)) {
      if (!lines.some((line) => line.includes(cause))) lines.push(`  ${cause}`);
    }
    return { exitCode: exitCodeOf(error.code), lines };
  }
  const system = systemMessage(error);
  if (system !== undefined) return { exitCode: exitCodes.failure, lines: [`holdfast: ${system}`] };
  const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return {
    exitCode: exitCodes.failure,
    lines: [`holdfast: unexpected error, a defect of Holdfast. Please report it with this trace: ${stack}`],
  };
}

/**
 * What the store said, which is what to do about it, and last what the driver said. An error of several connections has no
 * message of its own.
 */
function causesOf(error: HoldfastError): readonly string[] {
  const told: string[] = [];
  let { cause } = error;
  for (; cause instanceof HoldfastError; cause = cause.cause) told.push(cause.message);
  if (cause instanceof AggregateError) [cause] = cause.errors;
  if (cause instanceof Error && cause.message !== "") told.push(cause.message);
  return told;
}

/** A file that is missing and the like: the system's own words say it all. */
function systemMessage(error: unknown): string | undefined {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  return typeof code === "string" && typeof syscall === "string" ? message : undefined;
}
