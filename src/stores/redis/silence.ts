/**
 * Replaces connections that a network has forgotten. A proxy, a firewall or a dead host tells neither end, and a client notices only when
 * TCP gives up after a quarter of an hour. A slow server must not lose its connections, so one is replaced only if all of this holds:
 *
 * - A call got no answer for OVERDUE_MS, or the connection only listens.
 * - Nothing arrived on the connection for SILENT_MS, not even the answer to a PING.
 * - The same server answered a PING over a new connection. A slow script or a stopped server answers on none.
 * - The client shows no blocking command that it waits for.
 */
import { StoreUnavailableError } from "../../store/index.ts";
import { replyCode } from "./errors.ts";

/** A connection of a client. */
export interface Link {
  /** The owner of the connection, the same object each time. */
  readonly client: object;
  /** Changes when bytes arrive, as far as the client shows it, and with each new connection. */
  mark(): string;
  /** The blocking command that the connection waits for, if the client shows it. */
  blockedBy(): string | undefined;
  ask(): Promise<unknown>;
  /** Asks the same server over a new connection. */
  askElsewhere(timeoutMs: number): Promise<unknown>;
  replace(): void;
}

/** The connections of a client for calls, and those of its own that only listen. */
export interface Links {
  calling(): readonly Link[] | Promise<readonly Link[]>;
  listening(): readonly Link[];
}

const LOOK_EVERY_MS = 500;
const OVERDUE_MS = 1_000;
const SILENT_MS = 1_000;
const NEW_CONNECTION_MS = 2_000;
/** An answer that was under way when the new connection answered arrives within this time. */
const LATE_ANSWER_MS = 250;
/** The interval of PINGs on a connection that answers. */
const ASK_EVERY_MS = 4_000;
/** The time for a listening connection of the store to answer. */
const LISTENER_ANSWERS_MS = 4_000;
/** A client that fails its calls early has none under way between two of them. */
const FORGET_MS = 10_000;
/** The most calls of one partition that wait for an overdue answer, */
const MAX_OVERDUE = 16;
/** and the most if the next call releases a claim. */
const MAX_OVERDUE_RELEASES = 128;

interface Call {
  reject(error: unknown): void;
}

/** The calls of one partition, which is on one server. */
interface Partition {
  readonly calls: Set<Call>;
  sentMs: number;
  /** The time since which an answer is awaited and none has come. */
  silentSinceMs: number | undefined;
}

interface Check {
  mark: string;
  sinceMs: number;
  outcome: "none" | "answered" | "failed";
  isProbing: boolean;
}

export class SilenceWatch {
  readonly #links: Links;
  readonly #partitions = new Map<string, Partition>();
  #checks = new WeakMap<object, Check>();
  #answers = 0;
  #listeners = 0;
  #timer: NodeJS.Timeout | undefined;
  #lookedMs = 0;
  #isFinding = false;
  #hasWarned = false;

  constructor(links: (watch: SilenceWatch) => Links) {
    this.#links = links(this);
  }

  /** The number of answers so far. */
  get answers(): number {
    return this.#answers;
  }

  /** Makes a call, unless too many wait already. `releases`: whether it releases a claim. */
  send(place: string, releases: boolean, call: () => Promise<unknown>): Promise<unknown> {
    const nowMs = performance.now();
    const partition = this.#partitionOf(place);
    partition.silentSinceMs ??= nowMs;
    if (
      isOverdue(partition, nowMs) &&
      partition.calls.size >= (releases ? MAX_OVERDUE_RELEASES : MAX_OVERDUE)
    ) {
      return Promise.reject(tooManyWait(nowMs - partition.silentSinceMs));
    }
    partition.sentMs = nowMs;
    this.#lookSoon();
    return new Promise((resolve, reject) => {
      const asked = call();
      const waiting: Call = { reject };
      partition.calls.add(waiting);
      const heard = () => {
        partition.calls.delete(waiting);
        partition.silentSinceMs = partition.calls.size > 0 ? performance.now() : undefined;
        this.#answers++;
      };
      asked.then(
        (reply) => {
          heard();
          resolve(reply);
        },
        (error: unknown) => {
          if (replyCode(error) !== undefined) heard();
          else partition.calls.delete(waiting);
          reject(error);
        },
      );
    });
  }

  /** Also checks the listening connections of the client, until the returned function is called. */
  listen(): () => void {
    this.#listeners++;
    this.#lookSoon();
    let ended = false;
    return () => {
      if (!ended) this.#listeners--;
      ended = true;
    };
  }

  #partitionOf(place: string): Partition {
    const known = this.#partitions.get(place);
    if (known !== undefined) return known;
    const partition: Partition = { calls: new Set(), sentMs: 0, silentSinceMs: undefined };
    this.#partitions.set(place, partition);
    return partition;
  }

  #lookSoon(): void {
    if (this.#timer !== undefined) return;
    this.#lookedMs = performance.now();
    this.#timer = setTimeout(this.#look, LOOK_EVERY_MS).unref();
  }

  readonly #look = () => {
    this.#timer = undefined;
    const nowMs = performance.now();
    // After a pause of this process, answers may have arrived unread.
    const wasPaused = nowMs - this.#lookedMs > 2 * LOOK_EVERY_MS;
    if (wasPaused) this.#checks = new WeakMap();
    const waiting = [...this.#partitions.values()].filter((partition) => isWaiting(partition, nowMs));
    if (!wasPaused && waiting.some((partition) => isOverdue(partition, nowMs))) this.#findCalling();
    if (!wasPaused && this.#listeners > 0) this.#checkAll(this.#links.listening());
    if (waiting.length > 0 || this.#listeners > 0) this.#lookSoon();
  };

  #findCalling(): void {
    if (this.#isFinding) return;
    this.#isFinding = true;
    Promise.resolve(this.#links.calling())
      .then((links) => this.#checkAll(links))
      .catch(() => {})
      .finally(() => {
        this.#isFinding = false;
      });
  }

  #checkAll(links: readonly Link[]): void {
    const nowMs = performance.now();
    for (const link of links) this.#check(link, nowMs);
  }

  #check(link: Link, nowMs: number): void {
    const check = this.#checks.get(link.client);
    const mark = link.mark();
    const command = link.blockedBy();
    if (command !== undefined) {
      this.#failBlocked(command, nowMs);
      return;
    }
    if (check === undefined || check.outcome === "answered") {
      if (check === undefined || nowMs - check.sinceMs >= ASK_EVERY_MS) this.#ask(link, mark, nowMs);
      return;
    }
    if (check.mark !== mark) {
      check.mark = mark;
      check.sinceMs = nowMs;
    }
    // A client may reject the PING before the connection was silent for long enough.
    if (check.outcome === "failed") {
      this.#ask(link, mark, check.sinceMs);
      return;
    }
    if (nowMs - check.sinceMs < SILENT_MS || check.isProbing) return;
    void this.#probe(link, check);
  }

  #ask(link: Link, mark: string, sinceMs: number): void {
    const check: Check = { mark, sinceMs, outcome: "none", isProbing: false };
    this.#checks.set(link.client, check);
    void isAnswered(link.ask()).then((answered) => {
      check.outcome = answered ? "answered" : "failed";
    });
  }

  async #probe(link: Link, check: Check): Promise<void> {
    check.isProbing = true;
    const serves = await isAnswered(link.askElsewhere(NEW_CONNECTION_MS));
    if (serves) await new Promise((resolve) => setTimeout(resolve, LATE_ANSWER_MS).unref());
    check.isProbing = false;
    const isCurrent = this.#checks.get(link.client) === check && link.mark() === check.mark;
    if (!serves || !isCurrent || check.outcome === "answered") return;
    this.#checks.delete(link.client);
    this.#warn();
    link.replace();
  }

  /** The connection is alive and answers after that command. */
  #failBlocked(command: string, nowMs: number): void {
    for (const partition of this.#partitions.values()) {
      if (isOverdue(partition, nowMs)) for (const { reject } of partition.calls) reject(blocked(command));
    }
  }

  #warn(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    process.emitWarning(
      "A connection to Redis did not answer, while the server answered over a new one. Holdfast had the client replace it. Either the network forgot the connection, or the application waits on this client for a blocking command: then give the store a client of its own, redisStore(client.duplicate()). See docs/stores/redis.md.",
      { type: "HoldfastWarning", code: "SILENT_CONNECTION" },
    );
  }
}

const watches = new WeakMap<object, SilenceWatch>();

/** All stores over a client share its watch. */
export function silenceWatchOf(client: object, links: (watch: SilenceWatch) => Links): SilenceWatch {
  const known = watches.get(client) ?? new SilenceWatch(links);
  watches.set(client, known);
  return known;
}

/** Sends PINGs to a listening connection of the store. Returns a function that stops them. */
export function whileAnswering(ask: () => Promise<unknown>, onSilence: () => void): () => void {
  let deadline: NodeJS.Timeout | undefined;
  const timer = setInterval(() => {
    if (deadline !== undefined) return;
    deadline = setTimeout(onSilence, LISTENER_ANSWERS_MS).unref();
    // The client itself replaces a connection that is known to be lost.
    void isAnswered(ask()).then(() => {
      clearTimeout(deadline);
      deadline = undefined;
    });
  }, ASK_EVERY_MS).unref();
  return () => {
    clearInterval(timer);
    clearTimeout(deadline);
  };
}

/** An error from the server is an answer as well. */
function isAnswered(asked: Promise<unknown>): Promise<boolean> {
  return asked.then(
    () => true,
    (error: unknown) => replyCode(error) !== undefined,
  );
}

function isOverdue({ silentSinceMs }: Partition, nowMs: number): boolean {
  return silentSinceMs !== undefined && nowMs - silentSinceMs >= OVERDUE_MS;
}

function isWaiting(partition: Partition, nowMs: number): boolean {
  if (partition.calls.size === 0 && nowMs - partition.sentMs > FORGET_MS) partition.silentSinceMs = undefined;
  return partition.silentSinceMs !== undefined;
}

function tooManyWait(silentMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `Redis has not answered for ${Math.round(silentMs)} ms, and too many calls wait already.`,
  );
}

function blocked(command: string): StoreUnavailableError {
  return new StoreUnavailableError(
    `The Redis client waits for a ${command} of the application, and for nothing else until that is over. Give the store a client of its own: redisStore(client.duplicate()).`,
  );
}
