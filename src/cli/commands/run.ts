/** `holdfast run`: a command that runs while a lock is held. */
import { basename } from "node:path";
import { type Command, Option } from "commander";
import {
  type AcquireOptions,
  AcquireTimeoutError,
  checkInteger,
  HoldfastError,
  type Lease,
  type Locks,
  type PermitOptions,
} from "../../core/index.ts";
import { parseDuration } from "../duration.ts";
import { checkExecutable, shellFor } from "../executable.ts";
import { exitCodes } from "../exit-codes.ts";
import { CliError, usageError } from "../failure.ts";
import { type KillPlan, planKill } from "../kill-plan.ts";
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
}

/** What the options come to. */
interface Terms {
  readonly key: string;
  readonly plan: KillPlan;
  readonly maxHoldMs: number | undefined;
  readonly shared: boolean;
  readonly permits: { readonly count: number; readonly limit: number } | undefined;
  readonly acquire: AcquireOptions & PermitOptions;
}

export function configureRun(command: Command, output: Output): void {
  command
    .usage("<key> [options] -- <command> [arguments...]")
    .description(
      "Waits for the lock, runs the command, gives the lock back, and exits as the command does. The command finds HOLDFAST_KEY, " +
        "HOLDFAST_FENCE and HOLDFAST_ID in its environment. Signals are passed on to it. When the lease cannot be renewed, the command is " +
        "stopped, with all that it has started, before anybody else can be granted the lock.",
    )
    .argument("<key>", "the key of the lock")
    .argument("<command...>", "the command, after --")
    .option("--ttl <duration>", "how long the lock stays taken when this process or its machine dies", "30s")
    .option("--wait <duration>", "how long to wait for the lock; 0 does not wait (default: without end)")
    .option("--shared", "hold it together with other shared holders, as a reader")
    .option("--permits <n/m>", "take n of m permits, as of a semaphore")
    .option("--priority <number>", "higher goes first, 0 to 65535")
    .option("--id <id>", "the claim's id: a retry with the same id takes over what a crashed run has left")
    .option("--info <text>", "for people who look at the lock (default: the command's name)")
    .option("--max-hold <duration>", "stop the command when it has held the lock for so long")
    .option("--kill-after <duration>", "from SIGTERM to SIGKILL (default: a third of the ttl, at most 10s)")
    .option(
      "--margin <duration>",
      "from SIGKILL to the end of the lease (default: a twentieth of the ttl, 250ms to 1s)",
    )
    .addOption(
      new Option(
        "--foreground",
        "let the command have the terminal; what it has started is then not stopped with it",
      ),
    );
  addTargetOptions(command)
    .addHelpText(
      "after",
      `
Exit codes besides those of the command:
  64 wrong usage · 69 store or server unavailable · 70 other failure · 75 not acquired · 77 not permitted
  79 lease lost · 126 not executable · 127 not found · 128+n ended by signal n

Examples:
  holdfast run nightly-report -- ./report.sh
  holdfast run nightly-report --wait 0 -- ./report.sh
  holdfast run gpu --permits 1/4 --store redis://localhost:6379 -- python train.py
  holdfast run schema --ttl 1m --info "release 4.2" -- sh -c 'migrate --fence "$HOLDFAST_FENCE"'`,
    )
    .action(async (key: string, words: string[], options: RunOptions) => {
      const stop = stopSignal(["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]);
      const terms = resolveTerms(key, words, options);
      checkExecutable(words[0] ?? "");
      // Before it waits for the lock.
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

function resolveTerms(key: string, words: readonly string[], options: RunOptions): Terms {
  const duration = (name: string, text: string | undefined) =>
    text === undefined ? undefined : parseDuration(name, text);
  const ttlMs = checkInteger("--ttl", parseDuration("--ttl", options.ttl), 10, 86_400_000);
  const plan = planKill({
    ttlMs,
    killAfterMs: duration("--kill-after", options.killAfter),
    marginMs: duration("--margin", options.margin),
  });
  const maxHoldMs = duration("--max-hold", options.maxHold);
  if (maxHoldMs !== undefined && maxHoldMs <= plan.killAfterMs + plan.marginMs) {
    throw usageError(
      "--max-hold leaves the command no time: it must be more than --kill-after and --margin together.",
    );
  }
  if (options.shared && options.permits !== undefined) {
    throw usageError("--shared and --permits exclude each other: pass one of them.");
  }
  const permits = parsePermits(options.permits);
  const waitMs = duration("--wait", options.wait);
  const { priority, id } = options;
  return {
    key,
    plan,
    maxHoldMs,
    shared: options.shared === true,
    permits,
    acquire: {
      info: options.info ?? basename(words[0] ?? ""),
      ...(waitMs !== undefined && { waitMs }),
      ...(priority !== undefined && { priority: checkInteger("--priority", Number(priority), 0, 65_535) }),
      ...(id !== undefined && { id }),
      ...(permits !== undefined && { permits: permits.count }),
    },
  };
}

function parsePermits(text: string | undefined): Terms["permits"] {
  if (text === undefined) return undefined;
  const [, count, limit] = /^(\d{1,10})\/(\d{1,10})$/.exec(text) ?? [];
  if (count === undefined || limit === undefined || Number(count) < 1 || Number(count) > Number(limit)) {
    throw usageError(`--permits must be n/m, n of m permits such as 1/4, not ${JSON.stringify(text)}.`);
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
  try {
    // Whoever waited may have learnt of the grant late in the claim's life; the command starts with a whole ttl.
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
    // Signals are the command's from here on. It listens to them already, so there is no moment in which nobody does.
    stop.forget();
    const ending = await supervised;
    return ending.lost ? exitCodes.lost : ending.exitCode;
  } finally {
    await lease[Symbol.asyncDispose]();
  }
}

async function acquire(locks: Locks, terms: Terms, stop: StopSignal, output: Output): Promise<Lease> {
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
    if (!(error instanceof AcquireTimeoutError)) throw error;
    throw await notAcquired(locks, key);
  }
}

/** Says who has it, if that can be found out: it is the first question anyway. */
async function notAcquired(locks: Locks, key: string): Promise<CliError> {
  const message = `ACQUIRE_TIMEOUT: "${key}" was not acquired`;
  try {
    const { held, waitingCount } = await locks.inspect(key, { maxClaims: 1 });
    const [holder] = held;
    if (holder === undefined) return new CliError(exitCodes.notAcquired, `${message}.`);
    const info = holder.info === "" ? "" : ` ("${holder.info}")`;
    const waiting = waitingCount === 0 ? "" : `, and ${waitingCount} wait for it`;
    return new CliError(exitCodes.notAcquired, `${message}: ${holder.owner}${info} holds it${waiting}.`);
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    return new CliError(exitCodes.notAcquired, `${message}.`);
  }
}
