/** What an administrator sees: the views of the nodes as one. */
import {
  bounds,
  type ClaimStatus,
  invalid,
  type KeyStatus,
  type LookPage,
  type LookQuery,
} from "../../store/index.ts";
import { answerOf } from "./ballot.ts";
import type { Nodes } from "./nodes.ts";
import { nthLargest } from "./tally.ts";

/** How many claims of a key a node is asked for at least: with all of them, the counts are exact. */
const MIN_CLAIMS = 100;

type ByPrefix = Extract<LookQuery, { prefix: string }>;

export class MergedView {
  readonly #nodes: Nodes;

  constructor(nodes: Nodes) {
    this.#nodes = nodes;
  }

  async look(query: LookQuery): Promise<LookPage> {
    if ("prefix" in query) return this.#page(query);
    return { keys: [this.#merge(query.key, query.maxClaims, await this.#views(query.key, query.maxClaims))] };
  }

  /**
   * Goes through the nodes one after the other. A key is shown at the last node that has it, so it is shown once. Not at
   * the first: a claim may reach that one when it has been gone through already. One that only a silent minority has
   * may be missing, and one whose last node loses it in the middle of the listing.
   */
  async #page(query: ByPrefix): Promise<LookPage> {
    const { node, failed, inner } = this.#readCursor(query.cursor);
    const { prefix, limit } = query;
    const part = { prefix, limit, maxClaims: 0, ...(inner === "" ? {} : { cursor: inner }) };
    const votes = await this.#nodes.poll([node], (member) => member.look(part));
    const page = answerOf(votes[node]);
    if (page === undefined && failed + 1 > this.#nodes.members.length - this.#nodes.majority) {
      this.#nodes.requireMajority(votes);
    }
    const keys: KeyStatus[] = [];
    const found = page?.keys ?? [];
    const views = await Promise.all(found.map(({ key }) => this.#views(key, query.maxClaims)));
    for (const [index, { key }] of found.entries()) {
      const viewsOfKey = views[index] ?? [];
      if (viewsOfKey.slice(node + 1).some((view) => view !== undefined && isBusy(view))) continue;
      const status = this.#merge(key, query.maxClaims, viewsOfKey);
      if (isBusy(status)) keys.push(status);
    }
    const misses = page === undefined ? failed + 1 : failed;
    if (page?.cursor !== undefined) return { keys, cursor: `${node}.${misses}.${page.cursor}` };
    if (node + 1 < this.#nodes.members.length) return { keys, cursor: `${node + 1}.${misses}.` };
    return { keys };
  }

  /** What each node says of a key; undefined where it does not answer. */
  async #views(key: string, maxClaims: number): Promise<(KeyStatus | undefined)[]> {
    const query = { key, maxClaims: Math.min(Math.max(maxClaims, MIN_CLAIMS), bounds.maxShownClaims) };
    const votes = await this.#nodes.poll(this.#nodes.all, (member) => member.look(query));
    this.#nodes.requireMajority(votes, key);
    return this.#nodes.all.map((node) => answerOf(votes[node])?.keys[0]);
  }

  #merge(key: string, maxClaims: number, views: readonly (KeyStatus | undefined)[]): KeyStatus {
    const { majority } = this.#nodes;
    const known = views.filter((view) => view !== undefined);
    // A claim's place in the queue is that of the first node which has it: it goes first where nodes disagree.
    const byId = new Map<string, ClaimStatus[]>();
    for (const view of known) {
      for (const claim of [...view.held, ...view.waiting]) {
        byId.set(claim.id, [...(byId.get(claim.id) ?? []), claim]);
      }
    }
    const claims = [...byId.values()].map((copies) => mergeClaim(copies, majority));
    const held = claims.filter(({ state }) => state === "held").sort(byFence);
    const waiting = claims.filter(({ state }) => state === "waiting");
    const whole = known.every(
      (view) => view.held.length === view.heldCount && view.waiting.length === view.waitingCount,
    );
    const most = (count: (view: KeyStatus) => number) => nthLargest(known.map(count), majority);
    return {
      key,
      fence: held.at(-1)?.fence ?? nthFence(known, majority),
      held: held.slice(0, maxClaims),
      heldCount: whole ? held.length : most((view) => view.heldCount),
      heldWeight: whole ? sumOfWeights(held) : most((view) => view.heldWeight),
      waiting: waiting.slice(0, maxClaims),
      waitingCount: whole ? waiting.length : most((view) => view.waitingCount),
    };
  }

  #readCursor(cursor = "0.0."): { node: number; failed: number; inner: string } {
    const match = /^(\d{1,2})\.(\d{1,2})\.(.*)$/s.exec(cursor);
    const [, node, failed, inner = ""] = match ?? [];
    if (match === null || Number(node) >= this.#nodes.members.length) {
      throw invalid(`cursor must be the cursor of the previous page, not "${cursor}".`);
    }
    return { node: Number(node), failed: Number(failed), inner };
  }
}

/** One claim of what the nodes have of it. It is held when a majority says so; until then it waits. */
function mergeClaim(copies: readonly ClaimStatus[], majority: number): ClaimStatus {
  const holding = copies.filter(({ state }) => state === "held").sort(byFence);
  const isAgreed = ({ fence }: ClaimStatus) =>
    holding.filter((copy) => copy.fence === fence).length >= majority;
  if (holding.length >= majority) {
    const shown = holding.find(isAgreed) ?? (holding.at(-1) as ClaimStatus);
    const expiries = holding.map(({ expiresInMs }) => expiresInMs);
    return { ...shown, expiresInMs: nthLargest(expiries, majority) };
  }
  const { fence: _fence, acquiredAtMs: _acquiredAtMs, ...shown } = copies[0] as ClaimStatus;
  return { ...shown, state: "waiting", expiresInMs: Math.max(...copies.map((copy) => copy.expiresInMs)) };
}

function byFence(a: ClaimStatus, b: ClaimStatus): number {
  return (a.fence ?? 0n) < (b.fence ?? 0n) ? -1 : 1;
}

function nthFence(views: readonly KeyStatus[], n: number): bigint {
  return views.map(({ fence }) => fence).sort((a, b) => (a > b ? -1 : 1))[n - 1] ?? 0n;
}

function sumOfWeights(claims: readonly ClaimStatus[]): number {
  return claims.reduce((sum, { weight }) => sum + weight, 0);
}

function isBusy({ heldCount, waitingCount }: KeyStatus): boolean {
  return heldCount + waitingCount > 0;
}
