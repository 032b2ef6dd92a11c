/**
 * A shell that kills the command of `holdfast run` if this process cannot, because it was killed or stopped. It has a session of
 * its own, which no terminal signals.
 *
 * After each renewal it gets the remaining time of the lease over a pipe. When that time is over, or when the pipe ends without
 * `done`, it sends SIGKILL to the process group of the command.
 */
import { spawn } from "node:child_process";
import type { Writable } from "node:stream";

/**
 * The first line is the process or group to kill, as for kill(1). Each further line is a time in seconds. An alarm is a subshell
 * that sleeps and then kills; a new alarm starts before the old one is cancelled.
 *
 * An alarm is cancelled with SIGKILL. A trap could miss its signal between two steps of the shell. The shell then
 * waited for the old alarm, read no renewal, and killed a healthy command. The `sleep` of a cancelled alarm goes on and has no effect.
 *
 * A sleep that a signal ended does not kill: a service manager that stops all processes may signal the sleep first.
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
  /** Sets the process to kill, or the group if the number is negative. Comes first. */
  guard(target: number): void;
  /** Kills after this time, unless it is armed again before. */
  arm(ms: number): void;
  /** The command has ended. */
  dismiss(): void;
}

/** The limit of replacements of a watchdog that was killed. */
const MAX_REPLACED = 20;

/**
 * Starts a watchdog, and replaces it if it is killed. A service manager that stops a service signals every process of it, while
 * the command may need time to end.
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
    // Without a shell there is no watchdog.
    shell.on("error", () => {});
    shell.stdin.on("error", () => {});
    shell.once("exit", () => {
      if (dismissed || replaced++ >= MAX_REPLACED) return;
      pipe = start();
      if (target !== undefined) send(String(target));
      if (alarmAtMs !== undefined) arm(alarmAtMs - performance.now());
      // Its alarm may still run, and would kill the command although the lease was renewed.
      if (shell.pid !== undefined) killGroup(shell.pid);
    });
    shell.unref();
    return shell.stdin;
  }

  function send(word: string): void {
    pipe.write(`${word}\n`);
  }

  function arm(ms: number): void {
    alarmAtMs = performance.now() + ms;
    send((Math.max(0, ms) / 1_000).toFixed(3));
  }

  return {
    guard(pid) {
      target = pid;
      send(String(pid));
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
    // The group is gone.
  }
}
