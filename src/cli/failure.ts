/** The message and the exit code of a failure. */
import { HoldfastError } from "../store/index.ts";
import { writeDuration } from "./duration.ts";
import { exitCodeOf, exitCodes } from "./exit-codes.ts";

/** A failure that the command itself found. */
export class CliError extends Error {
  override readonly name = "CliError";
  readonly exitCode: number;
  /** A second line with advice. */
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

/** The flags of options of the library. */
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

/** Only a defect of Holdfast is shown with a stack trace. */
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

/** The messages of the causes, down to that of the driver. An AggregateError has no message, so its first error stands for it. */
function causesOf(error: HoldfastError): readonly string[] {
  const messages: string[] = [];
  let { cause } = error;
  for (; cause instanceof HoldfastError; cause = cause.cause) messages.push(cause.message);
  if (cause instanceof AggregateError) [cause] = cause.errors;
  if (cause instanceof Error && cause.message !== "") messages.push(cause.message);
  return messages;
}

/** The message of an error of the operating system, such as a missing file. */
function systemMessage(error: unknown): string | undefined {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  return typeof code === "string" && typeof syscall === "string" ? message : undefined;
}
