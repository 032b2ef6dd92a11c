/**
 * Replaces connections that a network has forgotten. A proxy, a firewall or a dead host tells neither end, and no client makes another
 * connection by itself, for as long as TCP repeats what it sent: a quarter of an hour.
 *
 * A slow server must not cost anybody a connection. So one is replaced only if all of this holds:
 *
 * - A call got no answer for OVERDUE_MS, or the connection only listens.
 * - Nothing at all arrived on the connection for SILENT_MS, also not the answer to a PING.
 * - The same server answered a PING over a new connection. Redis serves one command at a time, so a slow script or a stopped server keeps
 *   that one waiting as well.
 * - The client does not wait for a blocking command, as far as it shows that.
 */
import { StoreUnavailableError } from "../../store/index.ts";
import { replyCode } from "./errors.ts";

/** A connection of a client, which the client replaces when it is lost. */
export interface Link {
  /** What has the connection. The same object each time. */
  readonly client: object;
  /** Changes when bytes arrive, as far as the client shows it, and with each new connection. */
  mark(): string;
  /** The blocking command of the application that the connection waits for, where the client shows it. */
  blockedBy(): string | undefined;
  ask(): Promise<unknown>;
  /** Asks the same server over a new connection. */
  askAnew(timeoutMs: number): Promise<unknown>;
  replace(): void;
}

/** The connections of a client that calls go over, and those that only listen, as far as they are the client's own. */
export interface Links {
  calling(): readonly Link[] | Promise<readonly Link[]>;
  listening(): readonly Link[];
}

const LOOK_EVERY_MS = 500;
const OVERDUE_MS = 1_000;
const SILENT_MS = 1_000;
const NEW_CONNECTION_MS = 2_000;
/** An answer that was on its way when the new connection was answered arrives within this time. */
const LATE_ANSWER_MS = 250;
/** How often a connection that answers is asked again. */
const ASK_EVERY_MS = 4_000;
/** How long a connection of the store's own that only listens may take to answer. */
const LISTENER_ANSWERS_MS = 4_000;
/** Where a client fails its calls early, nothing is under way between two of them. */
const FORGET_MS = 10_000;
/** How many calls for one place may wait for an answer that is overdue, */
const MAX_OVERDUE = 16;
/** and how many if the next one releases a claim: an acquire that waits may be served later, though its caller has given up. */
const MAX_OVERDUE_RELEASES = 128;

interface Call {
  reject(error: unknown): void;
}

/** The calls for one place: a partition, which is on one server. */
interface Lane {
  readonly calls: Set<Call>;
  sentMs: number;
  /** Since when an answer is awaited, and none has come. */
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
  readonly #lanes = new Map<string, Lane>();
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

  /** How many answers have come. */
  get answers(): number {
    return this.#answers;
  }

  /** Makes a call, unless too many wait already. `releases`: whether it gives back a claim. */
  send(place: string, releases: boolean, call: () => Promise<unknown>): Promise<unknown> {
    const nowMs = performance.now();
    const lane = this.#laneOf(place);
    lane.silentSinceMs ??= nowMs;
    if (isOverdue(lane, nowMs) && lane.calls.size >= (releases ? MAX_OVERDUE_RELEASES : MAX_OVERDUE)) {
      return Promise.reject(tooManyWait(nowMs - lane.silentSinceMs));
    }
    lane.sentMs = nowMs;
    this.#lookSoon();
    return new Promise((resolve, reject) => {
      const asked = call();
      const waiting: Call = { reject };
      lane.calls.add(waiting);
      const heard = () => {
        lane.calls.delete(waiting);
        lane.silentSinceMs = lane.calls.size > 0 ? performance.now() : undefined;
        this.#answers++;
      };
      asked.then(
        (reply) => {
          heard();
          resolve(reply);
        },
        (error: unknown) => {
          if (replyCode(error) !== undefined) heard();
          else lane.calls.delete(waiting);
          reject(error);
        },
      );
    });
  }

  /** Also looks after the connections of the client that listen, until the returned function is called. */
  listen(): () => void {
    this.#listeners++;
    this.#lookSoon();
    let ended = false;
    return () => {
      if (!ended) this.#listeners--;
      ended = true;
    };
  }

  #laneOf(place: string): Lane {
    const known = this.#lanes.get(place);
    if (known !== undefined) return known;
    const lane: Lane = { calls: new Set(), sentMs: 0, silentSinceMs: undefined };
    this.#lanes.set(place, lane);
    return lane;
  }

  #lookSoon(): void {
    if (this.#timer !== undefined) return;
    this.#lookedMs = performance.now();
    this.#timer = setTimeout(this.#look, LOOK_EVERY_MS).unref();
  }

  readonly #look = () => {
    this.#timer = undefined;
    const nowMs = performance.now();
    // After a pause of this process, answers may be there and only be unread.
    const wasPaused = nowMs - this.#lookedMs > 2 * LOOK_EVERY_MS;
    if (wasPaused) this.#checks = new WeakMap();
    const waiting = [...this.#lanes.values()].filter((lane) => isWaiting(lane, nowMs));
    if (!wasPaused && waiting.some((lane) => isOverdue(lane, nowMs))) this.#findCalling();
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
    // A client may give up what it is asked before the connection was silent for long enough.
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
    const serves = await isAnswered(link.askAnew(NEW_CONNECTION_MS));
    if (serves) await new Promise((resolve) => setTimeout(resolve, LATE_ANSWER_MS).unref());
    check.isProbing = false;
    const isCurrent = this.#checks.get(link.client) === check && link.mark() === check.mark;
    if (!serves || !isCurrent || check.outcome === "answered") return;
    this.#checks.delete(link.client);
    this.#warn();
    link.replace();
  }

  /** The connection is alive, and answers once that command is over. */
  #failBlocked(command: string, nowMs: number): void {
    for (const lane of this.#lanes.values()) {
      if (isOverdue(lane, nowMs)) for (const { reject } of lane.calls) reject(blocked(command));
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

/** Of a client, for all stores over it. */
export function silenceWatchOf(client: object, links: (watch: SilenceWatch) => Links): SilenceWatch {
  const known = watches.get(client) ?? new SilenceWatch(links);
  watches.set(client, known);
  return known;
}

/** Asks a connection of the store's own that only listens, from time to time. Returns what ends that. */
export function whileAnswering(ask: () => Promise<unknown>, onSilence: () => void): () => void {
  let deadline: NodeJS.Timeout | undefined;
  const timer = setInterval(() => {
    if (deadline !== undefined) return;
    deadline = setTimeout(onSilence, LISTENER_ANSWERS_MS).unref();
    // A connection that is lost is the client's to mend.
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

/** An error that the server replied is an answer as well. */
function isAnswered(asked: Promise<unknown>): Promise<boolean> {
  return asked.then(
    () => true,
    (error: unknown) => replyCode(error) !== undefined,
  );
}

function isOverdue({ silentSinceMs }: Lane, nowMs: number): boolean {
  return silentSinceMs !== undefined && nowMs - silentSinceMs >= OVERDUE_MS;
}

function isWaiting(lane: Lane, nowMs: number): boolean {
  if (lane.calls.size === 0 && nowMs - lane.sentMs > FORGET_MS) lane.silentSinceMs = undefined;
  return lane.silentSinceMs !== undefined;
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
