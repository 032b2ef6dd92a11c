/** The invariants that hold after every event. */
import type { ClaimStatus, KeyStatus } from "holdfast";
import type { Client } from "./client.ts";
import type { World } from "./world.ts";

export class Violation extends Error {}

interface Known {
  /** Not a number where nobody can tell: it was about to expire, and was renewed or came anew. */
  readonly arrivedAtStep: number;
  readonly priority: number;
  /** Until when it certainly lives without a heartbeat, whatever the drift of clocks. */
  readonly aliveUntilMs: number;
  /** From when on it has certainly expired, and is another one if there still is one of its id. */
  readonly expiredFromMs: number;
  /** Absent while it waits. A grant is told from another by it. */
  readonly fence: bigint | undefined;
  /** Where it changes, the claim was taken over, or has left and come back. */
  readonly info: string;
  /** When that was, lately. */
  readonly changedAtStep: number;
  /** When it was there though its time was up, lately. It may have been dropped and have come again, after a grant of that step. */
  readonly outlivedAtStep: number | undefined;
}

/** For how long a client may believe in what was taken away: until the lease would have ended by itself. */
const MISTAKEN_MS = 3_200;

/** How long, in calm weather, news may take: a few messages at their slowest, and a tick. */
const NEWS_MS = 60;

export class Checks {
  readonly #world: World;
  readonly #clients: readonly Client[];
  readonly #maxFence = new Map<string, bigint>();
  readonly #fences = new Map<string, bigint>();
  readonly #claims = new Map<string, Known>();
  /** Claims that an administrator or a loss of data took away, and when: their holders may be mistaken for a while. */
  readonly #takenAway = new Map<string, number>();
  /** When a claim was first seen to be another call's than the lease's. */
  readonly #takenOver = new Map<string, number>();
  readonly #unnoticedSince = new Map<string, number>();
  #waiting = new Map<string, ClaimStatus>();
  /** From when on grants must be noticed promptly, and how much longer than a few messages that may take. */
  promptFromMs = Number.POSITIVE_INFINITY;
  patienceMs = 0;
  /** Whether a claim whose time is up may still be there, and be renewed, until somebody drops it. */
  lingering = false;

  constructor(world: World, clients: readonly Client[]) {
    this.#world = world;
    this.#clients = clients;
  }

  takeAway(key: string, id: string): void {
    this.#takenAway.set(`${key} ${id}`, this.#world.nowMs);
  }

  /** The store's clock may have been set, and claims may live longer than could be foreseen. */
  doubtArrivals(): void {
    for (const [name, known] of this.#claims) {
      this.#claims.set(name, {
        ...known,
        arrivedAtStep: Number.NaN,
        expiredFromMs: Number.POSITIVE_INFINITY,
      });
    }
  }

  look(keys: readonly KeyStatus[]): void {
    const held = new Map<string, ClaimStatus>();
    const waiting = new Map<string, ClaimStatus>();
    for (const status of keys) {
      this.#limitsKept(status);
      this.#fencesGrow(status);
      for (const claim of status.held) held.set(`${status.key} ${claim.id}`, claim);
      for (const claim of status.waiting) waiting.set(`${status.key} ${claim.id}`, claim);
      for (const claim of [...status.held, ...status.waiting])
        this.#arrive(`${status.key} ${claim.id}`, claim);
      this.#orderKept(status, waiting);
    }
    for (const name of this.#claims.keys()) {
      if (!held.has(name) && !waiting.has(name)) this.#claims.delete(name);
    }
    this.#waiting = waiting;
    this.#beliefsTrue(held);
    if (this.#world.nowMs >= this.promptFromMs) {
      this.#grantsNoticed(held);
      this.#turnsTaken(keys);
    }
  }

  #limitsKept(status: KeyStatus): void {
    const limit = Math.min(...status.held.map((claim) => claim.limit));
    if (status.heldWeight > limit) {
      throw new Violation(
        `${status.key}: a weight of ${status.heldWeight} is held where ${limit} is the limit`,
      );
    }
  }

  /** Every fence that shows up is above all that were there before, and no two claims share one. */
  #fencesGrow(status: KeyStatus): void {
    for (const claim of status.held) {
      const name = `${status.key} ${claim.id}`;
      const fence = claim.fence ?? 0n;
      if (this.#fences.get(name) === fence) continue;
      const highest = this.#maxFence.get(status.key) ?? 0n;
      if (fence <= highest) {
        throw new Violation(`${name}: granted with fence ${fence} after ${highest} had been given out`);
      }
      this.#maxFence.set(status.key, fence);
      this.#fences.set(name, fence);
    }
  }

  #arrive(name: string, claim: ClaimStatus): void {
    const known = this.#claims.get(name);
    const { priority, fence, info } = claim;
    const isSameGrant = fence !== undefined && fence === known?.fence;
    const { nowMs, steps } = this.#world;
    const arrivedAtStep =
      known === undefined || nowMs > known.expiredFromMs
        ? steps
        : (nowMs < known.aliveUntilMs && info === known.info) || isSameGrant
          ? known.arrivedAtStep
          : Number.NaN;
    const changedAtStep = known?.info === info ? known.changedAtStep : steps;
    const outlivedAtStep = nowMs < (known?.aliveUntilMs ?? nowMs) ? known?.outlivedAtStep : steps;
    const aliveUntilMs = nowMs + claim.expiresInMs * 0.98 - 1;
    const expiredFromMs = this.lingering ? Number.POSITIVE_INFINITY : nowMs + claim.expiresInMs * 1.02 + 1;
    this.#claims.set(name, {
      arrivedAtStep,
      priority,
      aliveUntilMs,
      expiredFromMs,
      fence,
      info,
      changedAtStep,
      outlivedAtStep,
    });
  }

  /** Nobody was granted while somebody waited who had been there before, or has a higher priority. */
  #orderKept(status: KeyStatus, waitingNow: ReadonlyMap<string, ClaimStatus>): void {
    for (const claim of status.held) {
      const name = `${status.key} ${claim.id}`;
      const granted = this.#claims.get(name) as Known;
      const isNew = this.#waiting.has(name) || granted.arrivedAtStep === this.#world.steps;
      if (!isNew) continue;
      for (const other of status.waiting) {
        const otherName = `${status.key} ${other.id}`;
        const waiter = this.#claims.get(otherName);
        if (waiter === undefined || !this.#waiting.has(otherName) || !waitingNow.has(otherName)) continue;
        if (waiter.changedAtStep === this.#world.steps || waiter.outlivedAtStep === this.#world.steps)
          continue;
        const overtaken =
          waiter.priority > granted.priority ||
          (waiter.priority === granted.priority && waiter.arrivedAtStep < granted.arrivedAtStep);
        if (overtaken) throw new Violation(`${name} was granted before ${otherName}, whose turn it was`);
      }
    }
  }

  /** A client that believes to hold a lease holds it. So two clients never believe in one exclusive lease. */
  #beliefsTrue(held: ReadonlyMap<string, ClaimStatus>): void {
    for (const client of this.#clients) {
      if (client.machine.dead || client.machine.paused) continue;
      for (const lease of client.leases) {
        if (!lease.held) continue;
        const name = `${lease.key} ${lease.id}`;
        if (this.#isExcused(this.#takenAway.get(name))) continue;
        const claim = held.get(name);
        if (claim === undefined)
          throw new Violation(`${client.machine.name} believes to hold ${name} and does not`);
        if (claim.expiresInMs <= 0)
          throw new Violation(`${client.machine.name} believes to hold ${name}, and its time is up`);
        if (claim.fence === lease.fence) continue;
        // A late request of a call that is over took the claim over. The lease then ends with its next heartbeat.
        const since = this.#takenOver.get(name) ?? this.#world.nowMs;
        this.#takenOver.set(name, since);
        if ((claim.fence ?? 0n) < lease.fence || !this.#isExcused(since)) {
          throw new Violation(
            `${client.machine.name} has fence ${lease.fence} for ${name}, not ${claim.fence}`,
          );
        }
      }
    }
  }

  #isExcused(sinceMs: number | undefined): boolean {
    return sinceMs !== undefined && this.#world.nowMs - sinceMs < MISTAKEN_MS;
  }

  /** In calm weather, a client learns of its grant within a few messages, not by its next heartbeat. */
  #grantsNoticed(held: ReadonlyMap<string, ClaimStatus>): void {
    const believed = new Set<string>();
    const alive = new Set<string>();
    for (const client of this.#clients) {
      // What a group has before it has all is shown to nobody.
      if (!client.machine.dead && client.openGroups === 0) alive.add(client.owner);
      for (const lease of client.leases) believed.add(`${lease.key} ${lease.id}`);
    }
    for (const name of this.#waiting.keys()) this.#unnoticedSince.delete(name);
    for (const [name, claim] of held) {
      if (believed.has(name) || !alive.has(claim.owner) || claim.expiresInMs <= 0)
        this.#unnoticedSince.delete(name);
      else this.#overdue(name, "was granted, and its client has not noticed");
    }
  }

  /** In calm weather, whoever can be granted is, within a few messages of the moment that made it possible. */
  #turnsTaken(keys: readonly KeyStatus[]): void {
    for (const status of keys) {
      const head = status.waiting.find(isAlive);
      const held = status.held.filter(isAlive);
      const limit = Math.min(head?.limit ?? 0, ...held.map((claim) => claim.limit));
      const heldWeight = held.reduce((sum, claim) => sum + claim.weight, 0);
      const name = `the queue of ${status.key}`;
      if (head === undefined || heldWeight + head.weight > limit) this.#unnoticedSince.delete(name);
      else this.#overdue(name, "could go on, and nobody has asked");
    }
  }

  #overdue(name: string, what: string): void {
    const since = this.#unnoticedSince.get(name);
    if (since === undefined) this.#unnoticedSince.set(name, this.#world.nowMs);
    else if (this.#world.nowMs - since > NEWS_MS + this.patienceMs) {
      throw new Violation(`${name} ${what} for ${Math.round(this.#world.nowMs - since)} ms of calm weather`);
    }
  }
}

export function isAlive(claim: ClaimStatus): boolean {
  return claim.expiresInMs > 0;
}
