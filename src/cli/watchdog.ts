/**
 * Kills the command of `holdfast run` where this process cannot: when it was killed itself, or is stopped while the lease runs
 * out. It is a shell, which costs next to nothing, in a session of its own, which no terminal signals.
 *
 * It is told over a pipe how long the lease is good for, with every renewal anew. When that time is over without a newer one,
 * or the pipe ends without a goodbye, it sends SIGKILL to the command's process group.
 *
 * What it cannot do: between the start of the command and that of the watchdog there is a moment in which nobody kills the
 * command if this process is killed. Its lease is then good for a whole ttl, and nothing but the fence helps after that.
 */
import { spawn } from "node:child_process";

/**
 * `$1` is the process or group to kill, as kill(1) takes it. Each line that it reads is a time in seconds. An alarm is a subshell that
 * sleeps and then kills; a new one is set before the old one is taken back. Whatever was started is waited for, so that
 * no zombies are left in a container without an init.
 */
const script = `
alarm() {
  trap 'kill "$nap" 2>/dev/null; wait "$nap"; exit' TERM
  sleep "$1" &
  nap=$!
  wait "$nap" && kill -s KILL -- "$2" 2>/dev/null
}
cancel() {
  [ -n "$current" ] || return 0
  kill "$current" 2>/dev/null
  wait "$current"
}
current=
while read -r word; do
  if [ "$word" = done ]; then cancel; exit; fi
  alarm "$word" "$1" &
  next=$!
  cancel
  current=$next
done
kill -s KILL -- "$1" 2>/dev/null
cancel
`;

export interface Watchdog {
  /** Kills after this time, unless it is told another one before. */
  arm(ms: number): void;
  /** The command has ended. */
  dismiss(): void;
}

/** Starts one for a process, or for a group if the number is negative. */
export function startWatchdog(target: number): Watchdog {
  const shell = spawn("/bin/sh", ["-c", script, "holdfast-watchdog", `${target}`], {
    cwd: "/",
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  // Where there is no shell, or it was killed, this process is on its own.
  shell.on("error", () => {});
  shell.stdin.on("error", () => {});
  shell.unref();
  return {
    arm: (ms) => void shell.stdin.write(`${(Math.max(0, ms) / 1_000).toFixed(3)}\n`),
    dismiss: () => void shell.stdin.end("done\n"),
  };
}
