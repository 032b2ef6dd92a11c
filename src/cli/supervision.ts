/** Runs a command while a lease is held, and stops it before the lease ends. */
import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import type { Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import type { Lease } from "../client/index.ts";
import { shellFor } from "./executable.ts";
import { exitCodes } from "./exit-codes.ts";
import { CliError, inFlags } from "./failure.ts";
import type { KillPlan } from "./kill-plan.ts";
import { startWatchdog, type Watchdog } from "./watchdog.ts";

export interface SupervisionOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly plan: KillPlan;
  /** Whether the command stays in this process group, with the terminal. Its child processes are then not stopped with it. */
  readonly foreground: boolean;
  note(text: string): void;
}

/** Either the command ended by itself, or it was stopped because of its lease. */
export type Ending = { readonly lost: false; readonly exitCode: number } | { readonly lost: true };

/** The interval of checks whether a killed group is gone. */
const GROUP_TICK_MS = 5;

/** Signals that are passed on. In the foreground the terminal itself sends its signals to the command. */
const forwarded = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"] as const;
const fromTerminal: readonly string[] = ["SIGINT", "SIGQUIT", "SIGWINCH"];

/**
 * The command begins as a shell, which waits for a line and then becomes the command. So the watchdog knows its process id before
 * the command does anything. If this process is killed before that, the shell ends.
 */
const gate = 'read -r go <&3 && exec 3<&- && exec "$@"';

/** Starts the command and resolves when it has ended. */
export function supervise(lease: Lease, options: SupervisionOptions): Promise<Ending> {
  return new Supervision(lease, options).ended;
}

class Supervision {
  readonly ended: Promise<Ending>;
  readonly #lease: Lease;
  readonly #options: SupervisionOptions;
  readonly #child: ChildProcess;
  readonly #watchdog: Watchdog;
  readonly #listeners = new Map<NodeJS.Signals, () => void>();
  #timer: NodeJS.Timeout | undefined;
  /** The time of SIGKILL, once SIGTERM was sent. A later renewal does not change it. */
  #killAtMs = Number.POSITIVE_INFINITY;
  /** The end of the lease that was sent to the watchdog. */
  #armedMs = 0;
  #stopping = false;
  #over = false;

  constructor(lease: Lease, options: SupervisionOptions) {
    this.#lease = lease;
    this.#options = options;
    const { command, args, env, foreground } = options;
    // Before the command exists, so that no signal is lost and the watchdog guards it from the start.
    this.#listen();
    this.#watchdog = startWatchdog();
    const [shell, ...shellOptions] = shellFor(env);
    this.#child = spawn(shell, [...shellOptions, "-c", gate, "holdfast", command, ...args], {
      stdio: ["inherit", "inherit", "inherit", "pipe"],
      env,
      detached: !foreground,
    });
    this.ended = new Promise((resolve, reject) => {
      this.#child.once("error", (error: NodeJS.ErrnoException) => {
        this.#finish();
        reject(cannotStart(error));
      });
      this.#child.once("exit", (code, signal) => resolve(this.#exited(code, signal)));
    });
    const { pid } = this.#child;
    if (pid === undefined) return;
    this.#watchdog.guard(this.#targetOf(pid));
    // At once, because the lease may end without a change before.
    this.#check();
    lease.signal.addEventListener("abort", () => this.#check(), { once: true });
    void this.#follow();
    this.#open();
  }

  /** Lets the command begin. The lines for the watchdog are in its pipe by now, and stay there if this process is killed. */
  #open(): void {
    const pipe = this.#child.stdio[3] as Writable;
    pipe.on("error", () => {});
    pipe.end("go\n");
  }

  /** A negative number names a process group, as for kill(2). */
  #targetOf(pid: number): number {
    return this.#options.foreground ? pid : -pid;
  }

  async #follow(): Promise<void> {
    for await (const _ of this.#lease.watch()) {
      if (this.#over) return;
      this.#check();
    }
  }

  /** Sends the signals that are due, and sets a timer for the next one. */
  #check(): void {
    clearTimeout(this.#timer);
    if (this.#over) return;
    const { killAfterMs, marginMs } = this.#options.plan;
    const nowMs = performance.now();
    const leftMs = this.#lease.expiresInMs;
    if (leftMs <= marginMs || nowMs >= this.#killAtMs) {
      this.#kill();
      return;
    }
    // Only after a renewal, since every alarm costs the watchdog two processes.
    if (!this.#stopping && nowMs + leftMs > this.#armedMs + 1) {
      this.#armedMs = nowMs + leftMs;
      this.#watchdog.arm(leftMs - marginMs / 2);
    }
    if (!this.#stopping && leftMs <= killAfterMs + marginMs) {
      this.#stopping = true;
      this.#killAtMs = nowMs + leftMs - marginMs;
      this.#options.note(
        `holdfast: the lease on "${this.#lease.key}" is about to end. Stopping the command.`,
      );
      this.#signal("SIGTERM");
      // A stopped command gets SIGTERM only after SIGCONT.
      this.#signal("SIGCONT");
    }
    const dueMs = this.#stopping ? this.#killAtMs - nowMs : leftMs - killAfterMs - marginMs;
    this.#timer = setTimeout(() => this.#check(), Math.ceil(dueMs));
  }

  #kill(): void {
    if (!this.#lease.held && !this.#stopping) {
      const { reason } = this.#lease.signal;
      const why = reason instanceof Error ? inFlags(reason.message) : "The lease is lost.";
      this.#options.note(`holdfast: LEASE_LOST: ${why} The command was killed.`);
    }
    this.#stopping = true;
    this.#signal("SIGKILL");
  }

  async #exited(code: number | null, signal: NodeJS.Signals | null): Promise<Ending> {
    // If this process was stopped, the command may have run past the end of its lease.
    const lost = this.#stopping || !this.#lease.held;
    if (lost && !this.#options.foreground) await this.#endGroup();
    this.#finish();
    if (lost) return { lost };
    return { lost, exitCode: signal === null ? (code ?? 0) : exitCodes.signal + constants.signals[signal] };
  }

  /** Kills the rest of the group and waits for its end, because the lease is released after this. */
  async #endGroup(): Promise<void> {
    this.#stopping = true;
    const endMs = performance.now() + this.#options.plan.marginMs;
    while (this.#signal("SIGKILL") && performance.now() < endMs) await sleep(GROUP_TICK_MS);
  }

  #finish(): void {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#watchdog.dismiss();
    for (const [name, listener] of this.#listeners) process.off(name, listener);
  }

  /** Returns whether the process or the group exists. */
  #signal(signal: NodeJS.Signals): boolean {
    const { pid } = this.#child;
    // Without a process id, kill(2) would signal this process group.
    if (pid === undefined) return false;
    try {
      return process.kill(this.#targetOf(pid), signal);
    } catch {
      // It has ended.
      return false;
    }
  }

  #listen(): void {
    const { foreground } = this.#options;
    for (const name of forwarded) {
      const isFromTerminal = foreground && process.stdin.isTTY && fromTerminal.includes(name);
      this.#on(name, () => {
        if (!isFromTerminal) this.#signal(name);
      });
    }
    // In the foreground the terminal stops the command as well. Otherwise it is stopped first, and continues only after a check
    // of the lease: it must not run unsupervised.
    if (!foreground) {
      this.#on("SIGTSTP", () => {
        this.#signal("SIGSTOP");
        process.kill(process.pid, "SIGSTOP");
      });
    }
    this.#on("SIGCONT", () => {
      this.#check();
      if (!this.#stopping) this.#signal("SIGCONT");
    });
  }

  #on(name: NodeJS.Signals, listener: () => void): void {
    this.#listeners.set(name, listener);
    process.on(name, listener);
  }
}

function cannotStart(error: NodeJS.ErrnoException): CliError {
  return new CliError(
    exitCodes.notExecutable,
    `the system cannot start the command: ${error.message}.`,
    "Check the limits on processes and memory.",
  );
}
