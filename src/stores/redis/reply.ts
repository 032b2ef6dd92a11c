/** The lines that the script replies. Each operation reads its own, in order. */
import {
  type AcquireAnswer,
  type ClaimStatus,
  type HeldAnswer,
  type KeyStatus,
  type RefusalReason,
  type RenewAnswer,
  UNLIMITED,
  type WaitingAnswer,
} from "../../store/index.ts";

export class Reply {
  readonly #lines: readonly string[];
  #at = 0;
  /** The highest fence that was read. */
  highestFence = 0n;

  constructor(text: string) {
    this.#lines = text.split("\n");
  }

  get ended(): boolean {
    return this.#at >= this.#lines.length;
  }

  /** Whether the next operation failed alone. */
  get fails(): boolean {
    return this.#lines[this.#at] === "-1";
  }

  text(): string {
    return this.#lines[this.#at++] ?? "";
  }

  number(): number {
    return Number(this.text());
  }

  fence(): bigint {
    const fence = BigInt(this.text());
    if (fence > this.highestFence) this.highestFence = fence;
    return fence;
  }
}

const refusals: readonly (RefusalReason | undefined)[] = [undefined, "contended", "queue-full", "id-reused"];

export function readAcquire(reply: Reply): AcquireAnswer {
  const state = reply.text();
  if (state === "1") return readHeld(reply);
  if (state === "2") return readWaiting(reply);
  return { state: "refused", reason: refusals[reply.number()] as RefusalReason };
}

export function readRenew(reply: Reply): RenewAnswer {
  const state = reply.text();
  if (state === "1") return readHeld(reply);
  if (state === "2") return readWaiting(reply);
  return state === "5" ? { state: "gone", takenOverBy: reply.text() } : { state: "gone" };
}

export function readYes(reply: Reply): boolean {
  return reply.text() === "1";
}

export function readKeyStatus(key: string, reply: Reply): KeyStatus {
  const fence = reply.fence();
  const heldCount = reply.number();
  const heldWeight = reply.number();
  const waitingCount = reply.number();
  const shown = { held: reply.number(), waiting: reply.number() };
  const held = Array.from({ length: shown.held }, () => readClaim(reply));
  const waiting = Array.from({ length: shown.waiting }, () => readClaim(reply));
  return { key, fence, held, heldCount, heldWeight, waiting, waitingCount };
}

function readHeld(reply: Reply): HeldAnswer {
  return {
    state: "held",
    fence: reply.fence(),
    acquiredAtMs: reply.number(),
    expiresInMs: reply.number(),
  };
}

function readWaiting(reply: Reply): WaitingAnswer {
  return {
    state: "waiting",
    expiresInMs: reply.number(),
    retryInMs: reply.number(),
    fence: reply.fence(),
  };
}

function readClaim(reply: Reply): ClaimStatus {
  const common = {
    id: reply.text(),
    weight: reply.number(),
    limit: reply.number() || UNLIMITED,
    priority: reply.number(),
    ttlMs: reply.number(),
    owner: reply.text(),
    info: reply.text(),
    application: reply.text(),
    expiresInMs: reply.number(),
  };
  const fence = reply.fence();
  const acquiredAtMs = reply.number();
  return fence === 0n ? { ...common, state: "waiting" } : { ...common, state: "held", fence, acquiredAtMs };
}
