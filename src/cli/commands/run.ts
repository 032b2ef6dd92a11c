/** `holdfast run`: runs a command while a lock is held. */
import { basename } from "node:path";
import { type Command, Option } from "commander";
import type { AcquireOptions, Lease, Locks, PermitOptions } from "../../client/index.ts";
import { bounds, checkId, checkInfo, checkKey, HoldfastError } from "../../store/index.ts";
import { parseDuration, roughDuration, writeDuration } from "../duration.ts";
import { checkExecutable, shellFor } from "../executable.ts";
import { exitCodeOf, exitCodes } from "../exit-codes.ts";
import { inFlags, usageError } from "../failure.ts";
import { type KillPlan, planKill } from "../kill-plan.ts";
import { parseInteger } from "../number.ts";
import type { Output } from "../output.ts";
import { type StopSignal, stopSignal } from "../stop-signal.ts";
import { supervise } from "../supervision.ts";
import { addTargetOptions, resolveTarget, withLocks } from "../target.ts";

interface RunOptions {
  readonly ttl: string;
  readonly wait?: string;
  readonly shared?: true;
  readonly permits?: string;
  readonly priority?: string;
  readonly id?: string;
  readonly info?: string;
  readonly maxHold?: string;
  readonly killAfter?: string;
  readonly margin?: string;
  readonly foreground?: true;
  readonly contendedExitCode: string;
}

/** The options, resolved. */
interface Terms {
  readonly key: string;
  readonly plan: KillPlan;
  readonly maxHoldMs: number | undefined;
  readonly shared: boolean;
  readonly permits: { readonly count: number; readonly limit: number } | undefined;
  readonly acquire: AcquireOptions & PermitOptions;
  readonly contendedExitCode: number;
}

export function configureRun(command: Command, output: Output): void {
  command
    .usage("<key> [options] -- <command> [arguments...]")
    .description(
      "Waits for the lock, runs the command, releases the lock, and exits as the command does. The command finds HOLDFAST_KEY, " +
        "HOLDFAST_FENCE and HOLDFAST_ID in its environment. Signals are passed on to it. If the lease cannot be renewed, the command " +
        "and its process group are stopped before another claim can be granted the lock.",
    )
    .argument("<key>", "the key of the lock")
    .argument("<command...>", "the command, after --")
    .option("--ttl <duration>", "how long the lock stays taken if this process or its machine dies", "30s")
    .option("--wait <duration>", "how long to wait for the lock; 0 does not wait (default: without end)")
    .option(
      "--contended-exit-code <number>",
      "the exit code if the lock is not acquired, 0 to 255; 0 prints no error",
      `${exitCodes.notAcquired}`,
    )
    .option("--shared", "hold it together with other shared holders, as a reader")
    .option("--permits <n/m>", "take n of m permits, as of a semaphore")
    .option("--priority <number>", "higher goes first, 0 to 65535")
    .option("--id <id>", "the claim's id; a retry with the same id takes over the claim of a crashed run")
    .option("--info <text>", "a text for people (default: the command's name)")
    .option("--max-hold <duration>", "stop the command when it has held the lock for this long")
    .option("--kill-after <duration>", "from SIGTERM to SIGKILL (default: a third of the ttl, at most 10s)")
    .option(
      "--margin <duration>",
      "from SIGKILL to the end of the lease (default: a twentieth of the ttl, 250ms to 1s)",
    )
    .addOption(
      new Option(
        "--foreground",
        "let the command have the terminal; its child processes are then not stopped with it",
      ),
    );
  addTargetOptions(command)
    .addHelpText(
      "after",
      `
Exit codes besides those of the command:
  64 wrong usage · 69 store or server unavailable · 70 other failure · 77 not permitted
  75 not acquired, unless --contended-exit-code is another
  79 lease lost · 126 not executable · 127 not found · 128+n ended by signal n

Examples:
  holdfast run nightly-report -- ./report.sh
  holdfast run nightly-report --wait 0 -- ./report.sh
  holdfast run nightly-report --wait 0 --contended-exit-code 0 -- ./report.sh
  holdfast run gpu --permits 1/4 --store redis://localhost:6379 -- python train.py
  holdfast run schema --ttl 1m --info "release 4.2" -- sh -c 'migrate --fence "$HOLDFAST_FENCE"'`,
    )
    .action(async (key: string, words: string[], options: RunOptions) => {
      refuseMisplacedWords(process.argv, words);
      const stop = stopSignal(["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]);
      const terms = resolveTerms(key, words, options);
      checkExecutable(words[0] ?? "");
      // Fails before waiting for the lock if no shell fits.
      shellFor(process.env);
      process.exitCode = await withLocks(
        resolveTarget(command),
        (locks) => runLocked(locks, terms, words, options.foreground === true, stop, output),
        stop.signal,
      ).catch((error) => {
        if (stop.number() === 0) throw error;
        return exitCodes.signal + stop.number();
      });
    });
}

/** Only the key stands before `--`. If it is missing, commander would take the first word of the command as the key. */
function refuseMisplacedWords(argv: readonly string[], words: readonly string[]): void {
  const dashes = argv.indexOf("--");
  const command = argv.slice(dashes + 1);
  if (dashes === -1 || command.length === words.length) return;
  const written = command.length === 0 ? "<command> [arguments...]" : command.join(" ");
  throw usageError(
    command.length > words.length
      ? "the key is missing before --."
      : "only the key may stand before --, as one word.",
    `Write: holdfast run <key> -- ${written}`,
  );
}

function resolveTerms(key: string, words: readonly string[], options: RunOptions): Terms {
  const duration = (name: string, text: string | undefined) =>
    text === undefined ? undefined : parseDuration(name, text);
  const { minTtlMs, maxTtlMs } = bounds;
  const ttlMs = parseDuration("--ttl", options.ttl);
  if (ttlMs < minTtlMs || ttlMs > maxTtlMs) {
    const range = `${writeDuration(minTtlMs)} to ${writeDuration(maxTtlMs)}`;
    throw usageError(`--ttl must be from ${range}, not ${options.ttl}.`);
  }
  const plan = planKill({
    ttlMs,
    killAfterMs: duration("--kill-after", options.killAfter),
    marginMs: duration("--margin", options.margin),
  });
  const maxHoldMs = duration("--max-hold", options.maxHold);
  if (maxHoldMs !== undefined && maxHoldMs <= plan.killAfterMs + plan.marginMs) {
    throw usageError(
      `--max-hold ${options.maxHold} leaves the command no time to run.`,
      `Make it longer than --kill-after and --margin together: ${writeDuration(plan.killAfterMs + plan.marginMs)}.`,
    );
  }
  if (options.shared && options.permits !== undefined) {
    throw usageError("--shared and --permits exclude each other. Pass one of them.");
  }
  const permits = parsePermits(options.permits);
  const waitMs = duration("--wait", options.wait);
  const { priority, id } = options;
  return {
    key: checkKey(key, "<key>"),
    plan,
    maxHoldMs,
    shared: options.shared === true,
    permits,
    acquire: {
      info: checkInfo(options.info ?? basename(words[0] ?? ""), "--info"),
      ...(waitMs !== undefined && { waitMs }),
      ...(priority !== undefined && {
        priority: parseInteger("--priority", priority, 0, bounds.maxPriority),
      }),
      ...(id !== undefined && { id: checkId(id, "--id") }),
      ...(permits !== undefined && { permits: permits.count }),
    },
    contendedExitCode: parseInteger("--contended-exit-code", options.contendedExitCode, 0, 255),
  };
}

function parsePermits(text: string | undefined): Terms["permits"] {
  if (text === undefined) return undefined;
  const [, count, limit] = /^(\d{1,10})\/(\d{1,10})$/.exec(text) ?? [];
  const most = bounds.maxPermits;
  if (Number(count ?? 0) < 1 || Number(count) > Number(limit) || Number(limit) > most) {
    throw usageError(
      `--permits must be n/m, such as 1/4, with 1 <= n <= m <= ${most}, not ${JSON.stringify(text)}.`,
    );
  }
  return { count: Number(count), limit: Number(limit) };
}

/** Resolves to the exit code. */
async function runLocked(
  locks: Locks,
  terms: Terms,
  words: readonly string[],
  foreground: boolean,
  stop: StopSignal,
  output: Output,
): Promise<number> {
  const lease = await acquire(locks, terms, stop, output);
  if (lease === undefined) return terms.contendedExitCode;
  try {
    // A waiter may learn of its grant late. The command starts with a whole ttl.
    if (lease.expiresInMs < (terms.plan.ttlMs * 2) / 3) await lease.extend(terms.plan.ttlMs);
    if (stop.number() !== 0) return exitCodes.signal + stop.number();
    const [command = "", ...args] = words;
    const { key, id, fence } = lease;
    const env = { ...process.env, HOLDFAST_KEY: key, HOLDFAST_ID: id, HOLDFAST_FENCE: `${fence}` };
    const supervised = supervise(lease, {
      command,
      args,
      env,
      plan: terms.plan,
      foreground,
      note: output.note,
    });
    // The supervision listens already, so no signal is lost.
    stop.forget();
    const ending = await supervised;
    return ending.lost ? exitCodes.lost : ending.exitCode;
  } finally {
    await lease[Symbol.asyncDispose]();
  }
}

/** Prints the reason and resolves to undefined if the lock is not acquired. */
async function acquire(
  locks: Locks,
  terms: Terms,
  stop: StopSignal,
  output: Output,
): Promise<Lease | undefined> {
  const { key, plan, maxHoldMs, permits } = terms;
  const lockOptions = { ttlMs: plan.ttlMs, ...(maxHoldMs !== undefined && { maxHoldMs }) };
  const single = terms.shared ? locks.rwLock(key, lockOptions).read : locks.mutex(key, lockOptions);
  const lock = permits === undefined ? single : locks.semaphore(key, permits.limit, lockOptions);
  try {
    return await lock.acquire({
      ...terms.acquire,
      signal: stop.signal,
      onWaiting: () => {
        if (process.stderr.isTTY) output.note(`holdfast: waiting for "${key}"`);
      },
    });
  } catch (error) {
    if (!(error instanceof HoldfastError) || exitCodeOf(error.code) !== exitCodes.notAcquired) throw error;
    if (terms.contendedExitCode !== exitCodes.ok)
      output.note(`holdfast: ${await contention(locks, error, key)}`);
    return undefined;
  }
}

/** Names the holder and the remaining time of its lease, if the store answers. */
async function contention(locks: Locks, error: HoldfastError, key: string): Promise<string> {
  if (error.code !== "ACQUIRE_TIMEOUT") return `${error.code}: ${error.message}`;
  const status = await locks.inspect(key, { maxClaims: 1 }).catch(() => undefined);
  const [holder] = status?.held ?? [];
  if (status === undefined || holder === undefined) return `${error.code}: ${inFlags(error.message)}`;
  const info = holder.info === "" ? "" : ` ("${holder.info}")`;
  const waiting = status.waitingCount === 0 ? "" : ` Waiting claims: ${status.waitingCount}.`;
  const left = roughDuration(holder.expiresInMs);
  return `${error.code}: "${key}" is held by ${holder.owner}${info} for up to ${left} more.${waiting}`;
}
