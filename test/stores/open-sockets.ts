/** Sockets of this process. */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** How many sockets this process has open to a port of this machine, on Linux; elsewhere 0. */
export function openSockets(port: number): number {
  if (process.platform !== "linux") return 0;
  const hex = port.toString(16).toUpperCase().padStart(4, "0");
  const rows = readFileSync("/proc/self/net/tcp", "utf8").split("\n").slice(1);
  const inodes = new Set(
    rows
      .map((row) => row.trim().split(/\s+/))
      .filter(([, , to]) => to?.endsWith(`:${hex}`))
      .map((cells) => cells[9]),
  );
  return readdirSync("/proc/self/fd").filter((fd) => inodes.has(inodeOf(fd))).length;
}

function inodeOf(fd: string): string | undefined {
  try {
    return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1];
  } catch {
    // It was closed meanwhile.
    return undefined;
  }
}
