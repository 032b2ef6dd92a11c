/** Runs a command for as long as a lease is held, and not longer. */
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
  /** Whether the command stays in our own process group, where it has the terminal. Its children are then not stopped with it. */
  readonly foreground: boolean;
  note(text: string): void;
}

/** What came of it: the command ended by itself, or was stopped because of its lease. */
export type Ending = { readonly lost: false; readonly exitCode: number } | { readonly lost: true };

/** How often a group that was killed is looked at until it is gone. */
const GROUP_TICK_MS = 5;

/** Passed on as they come. A terminal's own go to the command by themselves where it shares our group. */
const forwarded = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"] as const;
const fromTerminal: readonly string[] = ["SIGINT", "SIGQUIT", "SIGWINCH"];

/**
 * The command begins as a shell that waits for a word, and becomes the command only then. Its number is known before it does
 * anything: without that, whoever kills us right after the start leaves a command behind that nobody knows of. When we are
 * gone before the word, it ends.
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
  /** When SIGKILL is due, once SIGTERM was sent. A renewal that comes after that changes nothing any more. */
  #killAtMs = Number.POSITIVE_INFINITY;
  /** The end of the lease that the watchdog knows of. */
  #armedMs = 0;
  #stopping = false;
  #over = false;

  constructor(lease: Lease, options: SupervisionOptions) {
    this.#lease = lease;
    this.#options = options;
    const { command, args, env, foreground } = options;
    // Both before there is a command: from its first moment on, no signal is lost and somebody looks after it.
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
    // At once, and not with the first change: nothing of the lease may change before its time is up.
    this.#look();
    lease.signal.addEventListener("abort", () => this.#look(), { once: true });
    void this.#follow();
    this.#open();
  }

  /** Lets the command begin. What the watchdog was told lies in its pipe by now, and stays there should we be killed. */
  #open(): void {
    const pipe = this.#child.stdio[3] as Writable;
    pipe.on("error", () => {});
    pipe.end("go\n");
  }

  /** A group by a negative number, as kill(2) takes it. */
  #targetOf(pid: number): number {
    return this.#options.foreground ? pid : -pid;
  }

  /** Looks at the lease after every change of it. */
  async #follow(): Promise<void> {
    for await (const _ of this.#lease.watch()) {
      if (this.#over) return;
      this.#look();
    }
  }

  /** Does what is due, and sets a timer for what is due next. */
  #look(): void {
    clearTimeout(this.#timer);
    if (this.#over) return;
    const { killAfterMs, marginMs } = this.#options.plan;
    const nowMs = performance.now();
    const leftMs = this.#lease.expiresInMs;
    if (leftMs <= marginMs || nowMs >= this.#killAtMs) {
      this.#kill();
      return;
    }
    // Only when it has moved: every new alarm costs the watchdog two processes.
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
      // A command that is stopped gets to see it only when it goes on.
      this.#signal("SIGCONT");
    }
    const dueMs = this.#stopping ? this.#killAtMs - nowMs : leftMs - killAfterMs - marginMs;
    this.#timer = setTimeout(() => this.#look(), Math.ceil(dueMs));
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
    // While we were stopped ourselves, the watchdog may have killed it; and whether it had ended in time, nobody can tell.
    const lost = this.#stopping || !this.#lease.held;
    if (lost && !this.#options.foreground) await this.#endGroup();
    this.#finish();
    if (lost) return { lost };
    return { lost, exitCode: signal === null ? (code ?? 0) : exitCodes.signal + constants.signals[signal] };
  }

  /**
   * What the command has left of its group has had its chance. It is waited for, because the lease is given back after this: the
   * next holder must not meet somebody who is still dying.
   */
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

  /** Whether there is somebody to signal. */
  #signal(signal: NodeJS.Signals): boolean {
    const { pid } = this.#child;
    // A command that could not be started has no number, and none at all would be our own group.
    if (pid === undefined) return false;
    try {
      return process.kill(this.#targetOf(pid), signal);
    } catch {
      // It has ended by itself, and its end is about to be told.
      return false;
    }
  }

  #listen(): void {
    const { foreground } = this.#options;
    for (const name of forwarded) {
      const comesByItself = foreground && process.stdin.isTTY && fromTerminal.includes(name);
      this.#on(name, () => {
        if (!comesByItself) this.#signal(name);
      });
    }
    // In the foreground the terminal stops all of us. Otherwise the command must not run while we do not look after it:
    // it is stopped first, and goes on only after a look at the lease.
    if (!foreground) {
      this.#on("SIGTSTP", () => {
        this.#signal("SIGSTOP");
        process.kill(process.pid, "SIGSTOP");
      });
    }
    this.#on("SIGCONT", () => {
      this.#look();
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
