/** Ends what tests have started and could not end themselves. */
import { type ChildProcess, spawn } from "node:child_process";

/**
 * One process that outlives this one by a moment, however this one ends, and ends the servers that are left, with their
 * children. It recognises them by the folder that they run in, because a process id may belong to somebody else by
 * then. A server is stopped before its children are ended, because it would start others in their place. All are ended
 * before any folder is removed: a server that was started again shares its folder with the one before, and would no
 * longer be recognised by a folder that is gone.
 */
const guardScript = `
left=""
while read -r pid folder; do left="$left $pid:$folder"; done
for each in $left; do
  pid="\${each%%:*}"
  case "$(readlink "/proc/$pid/cwd")/" in
    "\${each#*:}"/*)
      kill -STOP "$pid"
      kill -9 $(cat "/proc/$pid/task/$pid/children") "$pid" ;;
  esac
done
for each in $left; do
  while readlink "/proc/\${each%%:*}/cwd" | grep -qF "\${each#*:}"; do sleep 0.1; done
  rm -rf "\${each#*:}"
done`;

let guardian: ChildProcess | undefined;

/** Has the process ended and the folder removed when this process is gone. A folder alone is given before its process. */
export function guard(pid: number | undefined, folder: string): void {
  if (guardian === undefined) {
    guardian = spawn("sh", ["-c", guardScript], { stdio: ["pipe", "ignore", "ignore"], detached: true });
    guardian.unref();
    (guardian.stdin as unknown as { unref(): void }).unref();
  }
  guardian.stdin?.write(`${pid ?? 0} ${folder}\n`);
}
