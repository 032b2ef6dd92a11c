/**
 * Kills the command of `holdfast run` where this process cannot: when it was killed itself, or is stopped while the lease runs
 * out. It is a shell, which costs next to nothing, in a session of its own, which no terminal signals.
 *
 * It is told over a pipe how long the lease is good for, with every renewal anew. When that time is over without a newer one,
 * or the pipe ends without a goodbye, it sends SIGKILL to the command's process group.
 */
import { spawn } from "node:child_process";
import type { Writable } from "node:stream";

/**
 * The first line that it reads is the process or group to kill, as kill(1) takes it. Each further one is a time in seconds. An alarm
 * is a subshell that sleeps and then kills; a new one is set before the old one is taken back.
 *
 * An alarm is taken back with SIGKILL, which cannot get lost. With a trap it could, between two of the shell's own steps: then
 * the shell waited for it until it went off, heard of no renewal meanwhile, and the next alarm killed a command that was well. What
 * remains is the alarm's sleep, which ends by itself and does nothing.
 *
 * A sleep that a signal has ended is no alarm: whoever stops every process of a service may come to the sleep first, and the command
 * is to have its time to end.
 */
const script = `
alarm() {
  sleep "$1"
  [ "$?" -gt 128 ] || kill -s KILL -- "$target" 2>/dev/null
}
cancel() {
  [ -n "$current" ] || return 0
  kill -s KILL "$current" 2>/dev/null
  wait "$current"
}
current=
read -r target || exit
while read -r word; do
  if [ "$word" = done ]; then cancel; exit; fi
  alarm "$word" &
  next=$!
  cancel
  current=$next
done
kill -s KILL -- "$target" 2>/dev/null
cancel
`;

export interface Watchdog {
  /** Tells what to kill: a process, or a group if the number is negative. Before anything else. */
  guard(target: number): void;
  /** Kills after this time, unless it is told another one before. */
  arm(ms: number): void;
  /** The command has ended. */
  dismiss(): void;
}

/** How often a watchdog that was ended from outside is replaced. More is no accident, and would be no use. */
const MAX_REPLACED = 20;

/**
 * Starts it. One that is ended from outside is replaced: a service manager that stops a service signals every process of it,
 * and the command may take its time to end while nobody but us would look after it.
 */
export function startWatchdog(): Watchdog {
  let target: number | undefined;
  let alarmAtMs: number | undefined;
  let dismissed = false;
  let replaced = 0;
  let pipe = start();

  function start(): Writable {
    const shell = spawn("/bin/sh", ["-c", script, "holdfast-watchdog"], {
      cwd: "/",
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    // Where there is no shell, this process is on its own.
    shell.on("error", () => {});
    shell.stdin.on("error", () => {});
    shell.once("exit", () => {
      if (dismissed || replaced++ >= MAX_REPLACED) return;
      pipe = start();
      if (target !== undefined) tell(String(target));
      if (alarmAtMs !== undefined) arm(alarmAtMs - performance.now());
      // Its alarm may have outlived it, and would kill the command although the lease has been renewed meanwhile.
      if (shell.pid !== undefined) killGroup(shell.pid);
    });
    shell.unref();
    return shell.stdin;
  }

  function tell(word: string): void {
    pipe.write(`${word}\n`);
  }

  function arm(ms: number): void {
    alarmAtMs = performance.now() + ms;
    tell((Math.max(0, ms) / 1_000).toFixed(3));
  }

  return {
    guard(pid) {
      target = pid;
      tell(String(pid));
    },
    arm,
    dismiss() {
      dismissed = true;
      pipe.end("done\n");
    },
  };
}

function killGroup(leader: number): void {
  try {
    process.kill(-leader, "SIGKILL");
  } catch {
    // Nothing is left of it.
  }
}
