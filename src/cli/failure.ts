/** What the command says when it fails, and what it ends with. */
import { HoldfastError } from "../core/index.ts";
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

/** Never a stack trace, unless it is a mistake of ours: then that is what helps to mend it. */
export function describeFailure(error: unknown): Failure {
  if (error instanceof CliError) {
    const hint = error.hint === undefined ? [] : [`  ${error.hint}`];
    return { exitCode: error.exitCode, lines: [`holdfast: ${error.message}`, ...hint] };
  }
  if (error instanceof HoldfastError) {
    const lines = [`holdfast: ${error.code}: ${error.message}`];
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
    lines: [`holdfast: this should not have happened, and is a defect of Holdfast: ${stack}`],
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
