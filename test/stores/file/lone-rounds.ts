/**
 * All processes that have a folder open are killed, each at a random moment: while they open it, or while they lock and write. Held locks must
 * stay held, released locks must be free, and fences only grow.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Locks } from "holdfast";
import { fileStore } from "holdfast/file";
import { forkProgram } from "../../programs.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { type Grant, grantsIn, heldBy, judge, monotonicMs } from "./grant-log.ts";
import type { KillReport, KillRoundsOptions } from "./kill-rounds.ts";
import { end, lockerProgram } from "./lockers.ts";
import { checkPages } from "./page-check.ts";

/** Long enough to find a lease after its process was killed, also on a busy machine. */
const TTL_MS = 3_000;
/** About the time that a process takes to open the folder. */
const OPENING_MS = 200;
/** Rounds use different keys, so they do not wait for the leases of the rounds before. */
const GROUPS = 6;
const KEYS_OF_A_GROUP = 4;
/** The longest time to open the folder on a busy machine. */
const PATIENCE_MS = 30_000;
/** Records of keys that were idle for longer may be removed. */
const KEPT_MS = 200_000;
/** It lasts for all rounds, because it is not renewed. */
const kept = claimRequest("kept", { key: "kept", ttlMs: 3_600_000 });

export async function loneRounds(options: Omit<KillRoundsOptions, "forMs">): Promise<KillReport> {
  const { folder, rounds, held: wanted } = options;
  const data = join(folder, "data");
  const log = join(folder, "log");
  const faults: string[] = [];
  const killedMs = new Map<number, number>();
  const fence = await holdForGood(data);
  const isEnough = () => round >= rounds && heldBy(killedMs, grantsIn(log)) >= wanted;

  let round = 0;
  for (; !isEnough() && faults.length === 0; round++) {
    const group = Array.from({ length: KEYS_OF_A_GROUP }, (_, nth) => `work:${round % GROUPS}:${nth}`);
    // Several open the folder at the same time.
    const processes = Math.random() < 0.6 ? 1 : 3;
    const work = Math.random() < 0.5 ? ["busy", ...group] : ["quiet", `work:${round % GROUPS}:0`];
    const live = async () => {
      const isEarly = Math.random() < 0.4;
      const child = forkProgram(lockerProgram, [data, log, String(TTL_MS), ...work]);
      const fault = await reach(child, isEarly ? "opening" : "ready");
      if (fault === undefined) await sleep(Math.random() * (isEarly ? OPENING_MS : 300));
      else faults.push(fault);
      if (child.exitCode !== null || child.signalCode !== null) return;
      killedMs.set(child.pid as number, monotonicMs());
      await end(child);
    };
    await Promise.all(Array.from({ length: processes }, live));
    // Otherwise the next processes open the folder first, and may be killed meanwhile.
    if (Math.random() < 0.5) faults.push(...(await look(data, log, fence)));
  }

  faults.push(...(await look(data, log, fence)));
  const grants = grantsIn(log);
  for (const ofKey of byKey(grants).values()) faults.push(...judge(ofKey));
  const heldWhenKilled = heldBy(killedMs, grants);
  return { rounds: round, kills: killedMs.size, grants: grants.length, heldWhenKilled, faults };
}

/** Takes a lock that is never released, and closes the folder. Resolves to its fence. */
async function holdForGood(data: string): Promise<bigint> {
  const store = fileStore(data);
  try {
    const claim = await store.acquire(kept);
    if (claim.state !== "held") throw new Error(`the lock is ${claim.state} in a new folder`);
    return claim.fence;
  } finally {
    await store.close();
  }
}

/** Resolves when the process has sent this word, or to the fault if it has not. */
async function reach(child: ChildProcess, word: string): Promise<string | undefined> {
  const ended = once(child, "exit").then(
    ([code, signal]) => `a process ended by itself, with ${code ?? signal}`,
  );
  const said = new Promise<undefined>((resolve) => {
    child.on("message", (each) => {
      if (each === word) resolve(undefined);
    });
  });
  const silent = sleep(PATIENCE_MS, `a process was not ${word} after ${PATIENCE_MS} ms`, { ref: false });
  return Promise.race([said, ended, silent]);
}

/** Opens the folder, which no process has open, and compares the records with the log. */
async function look(data: string, log: string, keptFence: bigint): Promise<string[]> {
  const found: string[] = [];
  const patience = { requestTimeoutMs: PATIENCE_MS };
  const locks = createLocks(fileStore(data, { requestTimeoutMs: PATIENCE_MS }), patience);
  try {
    const { held } = await locks.inspect(kept.key);
    if (held.length !== 1 || held[0]?.fence !== keptFence) found.push("the lock that was kept is lost");
    for (const grants of byKey(grantsIn(log)).values()) found.push(...(await compare(locks, grants)));
    for await (const { key, heldCount } of locks.list({ prefix: "" })) {
      if (heldCount > 1) found.push(`${key} is held ${heldCount} times`);
    }
  } finally {
    await locks.close();
  }
  found.push(...checkPages(join(data, "locks.mdb")).problems);
  return found;
}

/** The faults of a key, of which these are all grants. */
async function compare(locks: Locks, grants: readonly Grant[]): Promise<string[]> {
  const last = grants.at(-1);
  if (last === undefined) return [];
  const { key } = last;
  const { held, fence } = await locks.inspect(key);
  const nowMs = monotonicMs();
  const found: string[] = [];
  if (fence < last.fence && nowMs < last.untilMs + KEPT_MS) {
    found.push(`${key}: the last fence is ${fence}, and ${last.fence} was granted`);
  }
  if (!last.ended && nowMs < last.untilMs && !held.some((claim) => claim.fence === last.fence)) {
    found.push(`${key}: fence ${last.fence} was held when its process was killed, and is lost`);
  }
  for (const claim of held) {
    const grant = grants.find((each) => each.fence === claim.fence);
    if (grant?.freed === true) found.push(`${key}: fence ${claim.fence} was given back, and is held again`);
  }
  return found;
}

function byKey(grants: readonly Grant[]): Map<string, Grant[]> {
  const all = new Map<string, Grant[]>();
  for (const grant of grants) all.set(grant.key, [...(all.get(grant.key) ?? []), grant]);
  return all;
}
