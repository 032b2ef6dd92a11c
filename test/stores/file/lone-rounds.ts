/**
 * All processes that have a folder open get killed, each at a random moment: while they open it, or while they lock and write. Then
 * nobody has it open, and what is true has to be found in the logs. The system keeps what a process wrote that was killed, so nothing may be
 * lost: what was held is held, what was given back is free, and fences only grow.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { createLocks, type Locks } from "holdfast";
import { fileStore } from "holdfast/file";
import { forkProgram } from "../../programs.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { type Grant, grantsIn, heldBy, judge, monotonicMs } from "./grant-log.ts";
import type { KillReport, KillRoundsOptions } from "./kill-rounds.ts";
import { end, lockerProgram, recordsIn } from "./lockers.ts";
import { checkPages } from "./page-check.ts";

/** Long enough to be looked at after whoever held it was killed, also on a busy machine. */
const TTL_MS = 3_000;
/** About what a process takes to open the folder, with its thread. */
const OPENING_MS = 200;
/** Rounds do not wait for what those before them have left. */
const GROUPS = 6;
const KEYS_OF_A_GROUP = 4;
/** What a process may take to open the folder where others are busy. */
const PATIENCE_MS = 30_000;
/** Records of keys that nobody has used for longer may be gone. */
const KEPT_MS = 200_000;
/** It must last for all rounds, as nobody renews it. */
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
    // Otherwise it is the next processes that find what these have left, and may be killed over it.
    if (Math.random() < 0.5) faults.push(...(await look(data, log, fence)));
  }

  faults.push(...(await look(data, log, fence)));
  const present = await recordsIn(data);
  if (!isDeepStrictEqual(await recordsIn(data), present)) faults.push("opened again, it is something else");
  const grants = grantsIn(log);
  for (const ofKey of byKey(grants).values()) faults.push(...judge(ofKey));
  const heldWhenKilled = heldBy(killedMs, grants);
  return { rounds: round, kills: killedMs.size, grants: grants.length, heldWhenKilled, faults };
}

/** Takes a lock that nobody gives back, and leaves nothing open. Resolves to its fence. */
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

/** Resolves when the process has said this word, to what has happened instead if it has not. */
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

/** Opens the folder, which nobody has open, and compares what is true with what was written down. */
async function look(data: string, log: string, keptFence: bigint): Promise<string[]> {
  const found: string[] = [];
  const patience = { requestTimeoutMs: PATIENCE_MS };
  const locks = createLocks(fileStore(data, { flightMs: PATIENCE_MS }), patience);
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

/** What is wrong with a key, of which these are all grants. */
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
