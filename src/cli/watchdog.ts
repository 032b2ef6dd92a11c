/**
 * Kills the command of `holdfast run` where this process cannot: when it was killed itself, or is stopped while the lease runs
 * out. It is a shell, which costs next to nothing, in a session of its own, which no terminal signals.
 *
 * It is told over a pipe how long the lease is good for, with every renewal anew. When that time is over without a newer one,
 * or the pipe ends without a goodbye, it sends SIGKILL to the command's process group.
 */
import { spawn } from "node:child_process";

/**
 * The first line that it reads is the process or group to kill, as kill(1) takes it. Each further one is a time in seconds. An alarm
 * is a subshell that sleeps and then kills; a new one is set before the old one is taken back.
 *
 * An alarm is taken back with SIGKILL, which cannot get lost. With a trap it could, between two of the shell's own steps: then
 * the shell waited for it until it went off, heard of no renewal meanwhile, and the next alarm killed a command that was well. What
 * remains is the alarm's sleep, which ends by itself and does nothing.
 */
const script = `
alarm() {
  sleep "$1"
  kill -s KILL -- "$target" 2>/dev/null
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

export function startWatchdog(): Watchdog {
  const shell = spawn("/bin/sh", ["-c", script, "holdfast-watchdog"], {
    cwd: "/",
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  // Where there is no shell, or it was killed, this process is on its own.
  shell.on("error", () => {});
  shell.stdin.on("error", () => {});
  shell.unref();
  return {
    guard: (target) => void shell.stdin.write(`${target}\n`),
    arm: (ms) => void shell.stdin.write(`${(Math.max(0, ms) / 1_000).toFixed(3)}\n`),
    dismiss: () => void shell.stdin.end("done\n"),
  };
}
