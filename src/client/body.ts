/** The bodies that hold leases while they run: which ones the running code was called from, and what keeps the process alive for them. */
import { AsyncLocalStorage } from "node:async_hooks";
import type { Heartbeat } from "./heartbeat.ts";
import type { Lease } from "./lease.ts";

/** What a body holds while it runs. */
interface Holding {
  readonly heartbeat: Heartbeat;
  readonly leases: readonly Lease[];
}

export class Body {
  /** Undefined once the body has ended. Code that it started may go on, and refers to it. */
  holding: Holding | undefined;
  /** The body that this one was called from. */
  outer: Body | undefined;

  constructor(holding: Holding, outer: Body | undefined) {
    this.holding = holding;
    this.outer = outer;
  }
}

const running = new AsyncLocalStorage<Body | undefined>();

let keeper: NodeJS.Timeout | undefined;
let runningCount = 0;

/** Runs a body that holds these leases. The process stays alive until the body ends. */
export async function runBody<T>(
  heartbeat: Heartbeat,
  leases: readonly Lease[],
  call: () => T | PromiseLike<T>,
): Promise<T> {
  const body = new Body({ heartbeat, leases }, withoutEnded(running.getStore()));
  countRunning(1);
  try {
    return await running.run(body, call);
  } finally {
    body.holding = undefined;
    countRunning(-1);
  }
}

/** Asked by every acquire; mostly there is none. */
export function isInBody(): boolean {
  return running.getStore() !== undefined;
}

/** A lease on a key, and the client that it belongs to. */
export interface SurroundingLease {
  readonly heartbeat: Heartbeat;
  readonly lease: Lease;
}

/** The leases on a key that the running code holds because it was called from their bodies, the innermost first. */
export function surroundingLeases({ store }: Heartbeat, key: string): SurroundingLease[] {
  const found: SurroundingLease[] = [];
  for (let body = running.getStore(); body !== undefined; body = body.outer) {
    if (body.holding?.heartbeat.store !== store) continue;
    const { heartbeat, leases } = body.holding;
    for (const lease of leases) if (lease.key === key && lease.isOpen) found.push({ heartbeat, lease });
  }
  return found;
}

/** Calls back as if from no body: what it starts outlives the body that happens to run now. */
export function outsideBodies<T>(call: () => T): T {
  return running.getStore() === undefined ? call() : running.run(undefined, call);
}

/** Unlinks bodies that have ended: bodies that each start the next one before they end would make a chain without end. */
function withoutEnded(innermost: Body | undefined): Body | undefined {
  const first = nextRunning(innermost);
  for (let body = first; body !== undefined; body = body.outer) body.outer = nextRunning(body.outer);
  return first;
}

function nextRunning(body: Body | undefined): Body | undefined {
  let next = body;
  while (next !== undefined && next.holding === undefined) next = next.outer;
  return next;
}

/** One timer for all bodies: to make one for each would be a tenth of a lock cycle. */
function countRunning(change: 1 | -1): void {
  runningCount += change;
  if (runningCount === 1 && change === 1) {
    keeper ??= setInterval(() => {}, 2 ** 31 - 1);
    keeper.ref();
  } else if (runningCount === 0) keeper?.unref();
}
