/** What a server says that it was asked for. */
import type { Redis } from "ioredis";

/** What clients send. What scripts do inside of the server counts as commands there, too, and is left out. */
export interface Counts {
  readonly calls: number;
  /** Time of the server, in microseconds. */
  readonly usec: number;
}

/** The commands of Holdfast's clients so far. */
export async function scriptCounts(admin: Redis): Promise<Counts> {
  return countsOf(await admin.info("commandstats"), ["evalsha", "eval", "subscribe", "script|load"]);
}

/** What these commands came to so far. A script that calls one of them counts as well. */
export function countsOf(info: string, commands: readonly string[]): Counts {
  let calls = 0;
  let usec = 0;
  for (const [, command = "", called, took] of info.matchAll(/^cmdstat_(.+?):calls=(\d+),usec=(\d+)/gm)) {
    if (!commands.includes(command)) continue;
    calls += Number(called);
    usec += Number(took);
  }
  return { calls, usec };
}

export function difference(after: Counts, before: Counts): Counts {
  return { calls: after.calls - before.calls, usec: after.usec - before.usec };
}
