/**
 * A gate for what no database guards: files, devices, and services that write for others.
 *
 * Whoever enters has the resource to itself until it leaves, so that an older write cannot land after a newer one that came
 * while it was on its way. The mark is durable before anybody is let in: a write that happened is never forgotten. The
 * interleavings, with an older holder O (fence 5) and a newer one N (fence 6):
 *
 * - O is inside when N comes. N waits until O has left.
 * - N has been inside when O comes, or goes in while O waits. O is refused when its turn comes.
 * - The process dies after N's mark was saved and before N wrote. O is refused; N, or somebody newer, writes again.
 * - The mark cannot be saved. N is not let in, and what the storage then has decides about the next one.
 */
import { type Clock, onAbort, systemClock } from "../platform/index.ts";
import { HoldfastError, invalid, StoreUnavailableError } from "../store/index.ts";
import { type Fenced, type FenceTarget, fenceOf, resourceOf, StaleFenceError } from "./fence.ts";
import { MarkFile } from "./mark-file.ts";
import { MemoryMarks } from "./memory-marks.ts";

/** Where marks are kept. */
export interface FenceMarks {
  /** The newest fence that was saved for the resource; undefined where there is none. */
  load(resource: string): bigint | undefined | PromiseLike<bigint | undefined>;
  /** Keeps the mark in place of an older one. Must not resolve before the mark would survive a crash. */
  save(resource: string, fence: bigint): void | PromiseLike<void>;
}

/** Marks that one gate has to itself, until it closes them. */
interface GateMarks extends FenceMarks {
  close?(): void;
}

export interface FenceGateOptions {
  /**
   * A file that holds the marks. One gate of the machine has it, from its first use until it is closed or its process ends; others are
   * refused meanwhile with `STORE_UNAVAILABLE`. Default: marks are kept in memory, and end with the process.
   */
  readonly file?: string;
  /** A place of your own for the marks, instead of a file. Give both `load` and `save`. */
  readonly load?: FenceMarks["load"];
  readonly save?: FenceMarks["save"];
  /** How many resources a file or the memory may hold marks for. Default 100,000. */
  readonly maxResources?: number;
  /** Where time comes from. Default: this machine. */
  readonly clock?: Clock;
}

export interface EnterOptions extends FenceTarget {
  /** How long to wait for others to leave; then it throws `ACQUIRE_TIMEOUT`. Default: without end. */
  readonly waitMs?: number;
  /** Cancels the wait, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** The right to write to a resource. The next one is let in once it is given back. */
export interface FencePass extends Disposable {
  readonly resource: string;
  readonly fence: bigint;
  /** Gives it back. Safe to call twice. */
  leave(): void;
}

export interface FenceGate {
  /** Waits for its turn, and throws STALE_FENCE if a newer fence has been let in by then. */
  enter(lease: Fenced, options?: EnterOptions): Promise<FencePass>;
  /** Enters, runs the body, and leaves whatever becomes of it. */
  run<T>(lease: Fenced, body: (pass: FencePass) => T | PromiseLike<T>, options?: EnterOptions): Promise<T>;
  /**
   * Ends the gate: those that wait are rejected with `CLOSED`, and those inside stay until they leave. Then another gate may have the
   * file.
   */
  close(): Promise<void>;
}

/**
 * Makes a gate. All writers of a resource have to go through the same one.
 *
 * @example
 * const gate = createFenceGate({ file: "./fences.json" });
 * await gate.run(lease, () => writeFile("report.txt", report));
 */
export function createFenceGate(options: FenceGateOptions = {}): FenceGate {
  return new Gate(marksOf(options), options.clock ?? systemClock);
}

function marksOf({ file, load, save, maxResources = 100_000 }: FenceGateOptions): GateMarks {
  if (!(Number.isInteger(maxResources) && maxResources > 0)) {
    throw invalid(`maxResources must be a whole number from 1, not ${maxResources}.`);
  }
  if (load === undefined && save === undefined) {
    return file === undefined ? new MemoryMarks(maxResources) : new MarkFile(file, maxResources);
  }
  if (typeof load !== "function" || typeof save !== "function" || file !== undefined) {
    throw invalid("Pass both load and save, or a file, or none of them.");
  }
  return { load, save };
}

/** Longer than timers go, and than anybody waits. */
const MAX_TIMER_MS = 2 ** 31 - 1;

interface Waiting {
  readonly go: () => void;
  readonly giveUp: (reason: unknown) => void;
}

class Gate implements FenceGate {
  readonly #marks: GateMarks;
  readonly #clock: Clock;
  /** Who waits for each resource that somebody is at. */
  readonly #lines = new Map<string, Waiting[]>();
  /** Those whose mark is being loaded or saved. */
  readonly #open = new Set<Promise<unknown>>();
  #closed = false;

  constructor(marks: GateMarks, clock: Clock) {
    this.#marks = marks;
    this.#clock = clock;
  }

  async enter(lease: Fenced, options: EnterOptions = {}): Promise<FencePass> {
    const fence = fenceOf(lease);
    const resource = resourceOf(lease, options.resource);
    await this.#turn(resource, options);
    const entering = this.#goIn(lease, resource, fence, options.signal);
    this.#open.add(entering);
    try {
      return await entering;
    } finally {
      this.#open.delete(entering);
    }
  }

  async #goIn(
    lease: Fenced,
    resource: string,
    fence: bigint,
    signal: AbortSignal | undefined,
  ): Promise<FencePass> {
    try {
      await this.#admit(resource, fence);
      if (this.#closed) throw closed();
      signal?.throwIfAborted();
      // It may have waited for longer than the lease lasted.
      lease.assertHeld?.();
    } catch (error) {
      this.#next(resource);
      throw error;
    }
    let inside = true;
    const leave = () => {
      if (inside) this.#next(resource);
      inside = false;
    };
    return { resource, fence, leave, [Symbol.dispose]: leave };
  }

  async run<T>(
    lease: Fenced,
    body: (pass: FencePass) => T | PromiseLike<T>,
    options: EnterOptions = {},
  ): Promise<T> {
    const pass = await this.enter(lease, options);
    try {
      return await body(pass);
    } finally {
      pass.leave();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const line of this.#lines.values()) for (const waiting of [...line]) waiting.giveUp(closed());
    await Promise.allSettled(this.#open);
    this.#closeMarks();
  }

  /** Resolves when nobody else is at the resource. Whoever it resolves for has to call `#next`. */
  async #turn(resource: string, { waitMs = Number.POSITIVE_INFINITY, signal }: EnterOptions): Promise<void> {
    if (!(typeof waitMs === "number" && waitMs >= 0)) {
      throw invalid(`waitMs must be 0 or more milliseconds (Infinity for no end), not ${waitMs}.`);
    }
    if (this.#closed) throw closed();
    signal?.throwIfAborted();
    const line = this.#lines.get(resource);
    if (line === undefined) {
      this.#lines.set(resource, []);
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const end = () => {
        const place = line.indexOf(waiting);
        if (place !== -1) line.splice(place, 1);
        timer?.cancel();
        listenNoMore?.();
      };
      const giveUp = (reason: unknown) => {
        end();
        reject(reason);
      };
      const go = () => {
        end();
        resolve();
      };
      const waiting: Waiting = { go, giveUp };
      const cancel = () => giveUp(signal?.reason);
      const timer =
        waitMs > MAX_TIMER_MS
          ? undefined
          : this.#clock.setTimer(waitMs, () => giveUp(tooLong(resource, waitMs)));
      timer?.keepAlive(true);
      line.push(waiting);
      const listenNoMore = signal === undefined ? undefined : onAbort(signal, cancel);
    });
  }

  /** The next one's turn. A resource that nobody waits for is forgotten here; its mark is not. */
  #next(resource: string): void {
    const [waiting] = this.#lines.get(resource) ?? [];
    if (waiting !== undefined) {
      waiting.go();
    } else {
      this.#lines.delete(resource);
      this.#closeMarks();
    }
  }

  /** Not while anybody is inside: another gate with the same marks would let in the next one. */
  #closeMarks(): void {
    if (this.#closed && this.#lines.size === 0) this.#marks.close?.();
  }

  async #admit(resource: string, fence: bigint): Promise<void> {
    try {
      const mark = checkMark(resource, await this.#marks.load(resource));
      if (mark !== undefined && mark > fence) throw new StaleFenceError(resource, fence, mark);
      if (mark !== fence) await this.#marks.save(resource, fence);
    } catch (error) {
      if (error instanceof HoldfastError) throw error;
      throw new StoreUnavailableError(
        `The gate could not store the mark of "${resource}", so it admits no write. The cause has the error.`,
        { key: resource, cause: error },
      );
    }
  }
}

/** A text or a number would be compared as something else than a fence. */
function checkMark(resource: string, mark: bigint | undefined): bigint | undefined {
  if (mark === undefined || typeof mark === "bigint") return mark;
  throw new HoldfastError(
    "STORE_FAILURE",
    `load must resolve to a bigint or undefined for "${resource}", not to ${mark === null ? "null" : typeof mark}. The gate admits no write.`,
    { key: resource },
  );
}

function closed(): HoldfastError {
  return new HoldfastError("CLOSED", "The gate is closed. Create another gate.");
}

function tooLong(resource: string, waitMs: number): HoldfastError {
  return new HoldfastError(
    "ACQUIRE_TIMEOUT",
    `Another writer of "${resource}" did not leave the gate within ${waitMs} ms. Try again, or raise waitMs.`,
    { key: resource },
  );
}
