/** The heartbeat's thread as the application's thread sees it: started, told of leases, started again when it dies. */
import { Worker } from "node:worker_threads";
import type {
  HeartbeatThread,
  HoldfastWarning,
  KeptClaim,
  StandbyHeartbeat,
  StandbyTerms,
} from "../../client/index.ts";
import { systemClock } from "../../platform/index.ts";
import { checkOptionNames, HoldfastError, invalid } from "../../store/index.ts";
import { toMicros } from "./cell.ts";
import { Kept } from "./kept.ts";
import type { KeepOrder, News, Order, ThreadData } from "./protocol.ts";
import { sharedAheadMs, sharedMs } from "./shared-time.ts";
import { resolveSource, type SourceOptions } from "./store-source.ts";

/** Options of `heartbeatThread`. */
export interface HeartbeatThreadOptions extends SourceOptions {
  /**
   * The longest that leases are kept alive while the event loop does not turn. Then they are lost, with the reason `blocked`, and
   * released, so that an endless loop does not keep its locks for ever. 1,000 or more; `Infinity` for no end. Default 600,000.
   */
  readonly maxBlockedMs?: number;
  /** Options of Node for the thread, such as `--import` and a loader for a module in TypeScript. Default: none. */
  readonly execArgv?: readonly string[];
}

const DEFAULT_MAX_BLOCKED_MS = 600_000;
const MIN_MAX_BLOCKED_MS = 1_000;
/** How long the end of the thread is waited for before it is made to end. */
const LEAVE_MS = 2_000;
/** How long after its death the thread is started again. Doubles with every death before its store has proven a lease. */
const RESTART_MS = 1_000;
const MAX_RESTART_MS = 300_000;

/**
 * A second heartbeat in a thread of its own, for `createLocks(store, { thread })`. While the event loop of the application is
 * blocked, it renews the leases of the client over a connection of its own. The store must be the one that the client uses.
 *
 * Throws `INVALID_ARGUMENT` for options that cannot be right. A thread that cannot reach its store, or that ends, is told as the
 * warning `THREAD_FAILED`; the first heartbeat goes on in any case.
 *
 * @example
 * const thread = heartbeatThread({ url: "redis://localhost:6379" });
 * const locks = createLocks(redisStore(client), { thread });
 */
export function heartbeatThread(options: HeartbeatThreadOptions): HeartbeatThread {
  checkOptionNames("heartbeatThread", options, {
    url: true,
    module: true,
    data: true,
    maxBlockedMs: true,
    execArgv: true,
  });
  const source = resolveSource(options);
  const { maxBlockedMs = DEFAULT_MAX_BLOCKED_MS, execArgv = [] } = options;
  if (!(typeof maxBlockedMs === "number" && maxBlockedMs >= MIN_MAX_BLOCKED_MS)) {
    throw invalid(
      `maxBlockedMs must be ${MIN_MAX_BLOCKED_MS} or more milliseconds (Infinity for no end), not ${maxBlockedMs}.`,
    );
  }
  if (!Array.isArray(execArgv) || execArgv.some((word) => typeof word !== "string")) {
    throw invalid('execArgv must be a list of strings, such as ["--enable-source-maps"].');
  }
  return {
    start({ clock, clockDrift, requestTimeoutMs, onWarning }) {
      if (clock !== systemClock) {
        throw invalid(
          "thread requires the system clock, because another clock does not work across threads. Remove the option clock.",
        );
      }
      const life = new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT);
      const data = { source, clockDrift, requestTimeoutMs, maxBlockedMs, life };
      return new ThreadHeartbeat(data, [...execArgv], onWarning);
    },
  };
}

class ThreadHeartbeat implements StandbyHeartbeat {
  readonly #data: ThreadData;
  readonly #execArgv: string[];
  readonly #onWarning: (warning: HoldfastWarning) => void;
  readonly #life: BigInt64Array;
  /** How often the event loop shows that it turns: often enough that a sign more or less does not matter. */
  readonly #lifeEveryMs: number;
  /** How much the time that threads share is ahead of the client's. */
  readonly #aheadMs = sharedAheadMs(systemClock.monotonicMs);
  readonly #kept = new Map<number, Kept>();
  #lastNumber = 0;
  #keeps: KeepOrder[] = [];
  #drops: number[] = [];
  #worker: Worker | undefined;
  #lifeTimer: NodeJS.Timeout | undefined;
  #restartTimer: NodeJS.Timeout | undefined;
  #deaths = 0;
  /** Whether it was said that the store may be the wrong one. */
  #hasDoubted = false;
  #closed = false;

  constructor(data: ThreadData, execArgv: string[], onWarning: (warning: HoldfastWarning) => void) {
    this.#data = data;
    this.#execArgv = execArgv;
    this.#onWarning = onWarning;
    this.#life = new BigInt64Array(data.life);
    this.#lifeEveryMs = Math.min(1_000, data.maxBlockedMs / 4);
    this.#start();
  }

  keep(terms: StandbyTerms, onLoss: () => void): KeptClaim {
    const number = ++this.#lastNumber;
    const kept = new Kept(terms, this.#aheadMs, onLoss, () => this.#drop(number));
    this.#kept.set(number, kept);
    if (this.#lifeTimer === undefined) this.#showLife();
    this.#tell(() => this.#keeps.push(kept.order(number)));
    return kept;
  }

  #drop(number: number): void {
    this.#kept.delete(number);
    this.#tell(() => this.#drops.push(number));
  }

  /**
   * Tells it soon, together with whatever else happens in this turn. Before the code runs that acquired the lease, though, which may
   * block the event loop at once: that is told of its lease by promises which are resolved after this.
   */
  #tell(add: () => void): void {
    if (this.#keeps.length === 0 && this.#drops.length === 0) queueMicrotask(() => this.#flush());
    add();
  }

  #flush(): void {
    const orders: Order = { keep: this.#keeps, drop: this.#drops };
    this.#keeps = [];
    this.#drops = [];
    this.#markLife();
    this.#worker?.postMessage(orders);
  }

  #markLife(): void {
    Atomics.store(this.#life, 0, toMicros(sharedMs()));
  }

  /** From the event loop's timers, so that it stops when the loop does. Ends by itself when no lease is left. */
  #showLife(): void {
    this.#lifeTimer = setInterval(() => {
      this.#markLife();
      if (this.#kept.size > 0) return;
      clearInterval(this.#lifeTimer);
      this.#lifeTimer = undefined;
    }, this.#lifeEveryMs).unref();
  }

  #start(): void {
    const worker = newWorker(this.#data, this.#execArgv);
    let cause: unknown;
    worker.on("message", (news: News) => this.#hear(news));
    worker.on("error", (error) => {
      cause = error;
    });
    worker.on("exit", () => this.#died(worker, cause));
    // Last of all: to listen for messages makes it keep the process alive again.
    worker.unref();
    this.#worker = worker;
    this.#markLife();
    const keep = [...this.#kept].map(([number, kept]) => kept.order(number));
    if (keep.length > 0) worker.postMessage({ keep, drop: [] } satisfies Order);
  }

  #hear(news: News): void {
    switch (news.type) {
      case "proven":
        this.#deaths = 0;
        return;
      case "lost":
        this.#kept.get(news.number)?.onLoss();
        return;
      case "unknown": {
        // It may have been released meanwhile; then it is no wonder.
        const key = this.#kept.get(news.number)?.ref.key;
        if (key === undefined || this.#hasDoubted) return;
        this.#hasDoubted = true;
        this.#warn(unknownText(key), key);
        return;
      }
      case "failing":
        this.#warn(
          `The store of the heartbeat's thread fails (${news.code}): ${news.message} ${UNPROTECTED} Check its url or module.`,
        );
    }
  }

  /** Leases are as they were: the first heartbeat never stopped. Only their protection is gone, until the next thread. */
  #died(worker: Worker, cause: unknown): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    if (!this.#closed) this.#startAgain(cause);
  }

  #startAgain(cause: unknown): void {
    const pauseMs = Math.min(RESTART_MS * 2 ** this.#deaths, MAX_RESTART_MS);
    this.#deaths++;
    this.#restartTimer = setTimeout(() => {
      try {
        this.#start();
      } catch (error) {
        // The machine has no thread to spare.
        this.#startAgain(error);
      }
    }, pauseMs).unref();
    const why = cause instanceof Error ? `: ${cause.message}` : "";
    this.#warn(
      `The heartbeat's thread has ended${why}. ${UNPROTECTED} The client starts it again in ${pauseMs} ms.`,
      "",
      cause,
    );
  }

  #warn(message: string, key = "", cause?: unknown): void {
    this.#onWarning({ code: "THREAD_FAILED", message, key, cause });
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#lifeTimer);
    clearTimeout(this.#restartTimer);
    const worker = this.#worker;
    if (worker === undefined) return;
    const ended = new Promise((resolve) => worker.once("exit", resolve));
    const timer = setTimeout(() => void worker.terminate(), LEAVE_MS);
    worker.ref();
    worker.postMessage("close" satisfies Order);
    await ended;
    clearTimeout(timer);
  }
}

function newWorker(workerData: ThreadData, execArgv: string[]): Worker {
  const entry = new URL("./entry.js", import.meta.url);
  try {
    // What the application loads into its own thread has no business in this one, so it inherits no options of Node.
    return new Worker(entry, { workerData, execArgv, name: "holdfast-heartbeat" });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const message = `The heartbeat's thread cannot be started: ${why}. Check the execArgv of heartbeatThread.`;
    throw new HoldfastError("INVALID_ARGUMENT", message, { cause });
  }
}

const UNPROTECTED = "Only the event loop renews leases, and loses them if it is blocked for too long.";

function unknownText(key: string): string {
  return (
    `The store of the heartbeat's thread does not know the lease on "${key}", which this client holds. ` +
    `Unless the lease was just lost, the thread uses another store. Compare url, prefix and table. ${UNPROTECTED}`
  );
}
