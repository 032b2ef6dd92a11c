/**
 * One session that listens for all clients of a store. It is opened when the first of them wants to, mended when it breaks,
 * and ended with the last. What was notified meanwhile is lost, which costs a waiter no more than the time to its next heartbeat.
 *
 * A pooler in transaction mode answers `listen`, and hands the session to somebody else. So each session is sent a sign through the
 * store's own client, and one that does not hear it is no session that listens. Whoever wanted to listen for the first time is told so, and
 * looks now and then instead; for a while nobody else tries, as each attempt takes a session and a second. Those who have listened before
 * wait for a session that hears, and are served at their heartbeats meanwhile.
 */
import { randomUUID } from "node:crypto";
import type { Clock, Timer } from "../../platform/index.ts";
import { StoreUnavailableError } from "../../store/index.ts";
import type { OnWake } from "../cas/index.ts";
import type { OpenListener, PostgresListener } from "./client.ts";
import { mapError } from "./errors.ts";
import { channelOf, readPayload } from "./wakes.ts";

/** How often a session is asked whether it is still there: a network may lose it without a word. */
const CHECK_MS = 15_000;
/** How long an answer is waited for, by default. */
const ANSWER_MS = 10_000;
/** How long a sign is waited for that the server has taken. */
const SIGN_MS = 1_000;
/** How long nobody new tries to listen after a sign was not heard: so long at first, doubling up to so long. */
const FIRST_DEAF_MS = 1_000;
const MAX_DEAF_MS = 60_000;
/** How long until the next attempt to mend it: so long at first, doubling up to so long. */
const FIRST_RETRY_MS = 50;
const MAX_RETRY_MS = 5_000;

interface Wanted {
  readonly onWake: OnWake;
  /** Whether it has listened before; then it is not given up. */
  known: boolean;
  resolve(): void;
  reject(error: unknown): void;
}

interface Session {
  readonly listener: PostgresListener;
  readonly channels: Set<string>;
  /** What it is to hear before it is relied on. Undefined once it has. */
  sign: string | undefined;
  onSign: () => void;
  lost: boolean;
}

/** Notifies through the store's own client. */
export type Notify = (channel: string, payload: string) => Promise<unknown>;

export class Listening {
  readonly #open: OpenListener;
  readonly #notify: Notify;
  readonly #clock: Clock;
  readonly #answerMs: number;
  readonly #wanted = new Map<string, Wanted>();
  #session: Session | undefined;
  #isWorking = false;
  #retryMs = FIRST_RETRY_MS;
  #deafMs = FIRST_DEAF_MS;
  #deafUntilMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;
  #closed = false;

  constructor(open: OpenListener, notify: Notify, clock: Clock, answerMs = ANSWER_MS) {
    this.#open = open;
    this.#notify = notify;
    this.#clock = clock;
    this.#answerMs = answerMs;
  }

  /** Resolves when notifications of this owner arrive, with what ends that. */
  async listen(owner: string, onWake: OnWake): Promise<() => void> {
    if (this.#clock.monotonicMs() < this.#deafUntilMs) throw nothingHeard();
    const channel = channelOf(owner);
    const wanted = await new Promise<Wanted>((resolve, reject) => {
      const entry: Wanted = { onWake, known: false, resolve: () => resolve(entry), reject };
      this.#wanted.set(channel, entry);
      this.#work();
    });
    return () => {
      if (this.#wanted.get(channel) !== wanted) return;
      this.#wanted.delete(channel);
      this.#work();
    };
  }

  /** Asks now whether the session is still there. */
  check(): void {
    if (this.#wanted.size > 0) this.#work();
  }

  close(): void {
    this.#closed = true;
    for (const wanted of this.#wanted.values())
      wanted.reject(new StoreUnavailableError("The store is closed."));
    this.#wanted.clear();
    this.#timer?.cancel();
    this.#end(this.#session);
  }

  #work(): void {
    if (this.#isWorking || this.#closed) return;
    this.#isWorking = true;
    this.#timer?.cancel();
    void this.#workOff().then((nextMs) => {
      // Somebody who came since the work was done has had it begun anew.
      if (this.#closed || this.#isWorking || nextMs === undefined) return;
      this.#timer = this.#clock.setTimer(nextMs, () => this.#work());
    });
  }

  /** Brings the session to what is wanted, and says when to look after it again. Does not throw. */
  async #workOff(): Promise<number | undefined> {
    try {
      while (this.#wanted.size > 0) {
        await this.#catchUp(await this.#opened());
        this.#retryMs = FIRST_RETRY_MS;
        if (this.#isCaughtUp()) return CHECK_MS;
      }
      // Nobody wants to listen any more, perhaps since before the session was open.
      this.#end(this.#session);
      return undefined;
    } catch (error) {
      this.#end(this.#session);
      for (const [channel, wanted] of this.#wanted) {
        if (wanted.known) continue;
        this.#wanted.delete(channel);
        wanted.reject(mapError(error));
      }
      if (this.#wanted.size === 0) return undefined;
      const nextMs = this.#retryMs;
      this.#retryMs = Math.min(2 * nextMs, MAX_RETRY_MS);
      return nextMs;
    } finally {
      // Together with the last look at what is wanted: whoever came between the two would be worked for by nobody.
      this.#isWorking = false;
    }
  }

  #isCaughtUp(): boolean {
    const channels = this.#session?.channels ?? new Set();
    return (
      channels.size > 0 &&
      channels.size === this.#wanted.size &&
      [...this.#wanted].every(([channel, { known }]) => known && channels.has(channel))
    );
  }

  async #opened(): Promise<Session> {
    if (this.#session !== undefined) return this.#session;
    const opening = this.#open();
    // One that comes too late is of no use.
    const listener = await this.#answered(opening, () => {
      opening.then(end, ignore);
    });
    const session: Session = {
      listener,
      channels: new Set(),
      sign: randomUUID(),
      onSign: ignore,
      lost: false,
    };
    const lose = () => {
      if (session.lost) return;
      this.#end(session);
      this.#work();
    };
    listener.on("error", lose);
    listener.on("end", lose);
    listener.on("notification", ({ channel, payload }) => {
      if (payload !== undefined && payload === session.sign) session.onSign();
      const wake = session.lost ? undefined : readPayload(payload);
      if (wake !== undefined) this.#wanted.get(channel)?.onWake(wake.key, wake.id, wake.fence);
    });
    listener.unref?.();
    this.#session = session;
    return session;
  }

  /** Starts and stops listening, or just asks whether the session is there. */
  async #catchUp(session: Session): Promise<void> {
    const { listener, channels } = session;
    const wanted = [...this.#wanted];
    const missing = wanted.filter(([channel]) => !channels.has(channel)).map(([channel]) => channel);
    const surplus = [...channels].filter((channel) => !this.#wanted.has(channel));
    const text = [...surplus.map(unlisten), ...missing.map(listen)].join("; ") || "select 1";
    await this.#answered(listener.query(text));
    const [first] = missing;
    if (first !== undefined) await this.#prove(session, first);
    for (const channel of surplus) channels.delete(channel);
    for (const [channel, entry] of wanted) {
      channels.add(channel);
      entry.known = true;
      entry.resolve();
    }
  }

  /** Whether what is notified reaches the session at all. */
  async #prove(session: Session, channel: string): Promise<void> {
    const { sign } = session;
    if (sign === undefined) return;
    const heard = new Promise<void>((resolve) => {
      session.onSign = resolve;
    });
    await this.#answered(this.#notify(channel, sign));
    await this.#within(SIGN_MS, heard, () => this.#beDeaf());
    session.sign = undefined;
    this.#deafMs = FIRST_DEAF_MS;
    this.#deafUntilMs = Number.NEGATIVE_INFINITY;
  }

  #beDeaf(): StoreUnavailableError {
    this.#deafUntilMs = this.#clock.monotonicMs() + this.#deafMs;
    this.#deafMs = Math.min(2 * this.#deafMs, MAX_DEAF_MS);
    return nothingHeard();
  }

  #end(session: Session | undefined): void {
    if (session === undefined || session.lost) return;
    session.lost = true;
    if (this.#session === session) this.#session = undefined;
    end(session.listener);
  }

  #answered<T>(promise: Promise<T>, onTooLate: () => void = ignore): Promise<T> {
    return this.#within(this.#answerMs, promise, () => {
      onTooLate();
      return new StoreUnavailableError(
        `PostgreSQL did not let the store listen within ${this.#answerMs} ms.`,
      );
    });
  }

  #within<T>(ms: number, promise: Promise<T>, onTooLate: () => Error): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = this.#clock.setTimer(ms, () => reject(onTooLate()));
      promise.then(resolve, reject).finally(() => timer.cancel());
    });
  }
}

function nothingHeard(): StoreUnavailableError {
  return new StoreUnavailableError(
    "PostgreSQL accepted LISTEN, but no notification arrives, as behind a pooler in transaction mode. Give listener a session that bypasses the pooler, or pass listener: false.",
  );
}

function listen(channel: string): string {
  return `listen "${channel}"`;
}

function unlisten(channel: string): string {
  return `unlisten "${channel}"`;
}

/** What becomes of a connection that nobody uses any more is of no interest. */
function end(listener: PostgresListener): void {
  void Promise.resolve()
    .then(() => listener.end())
    .catch(ignore);
}

function ignore(): void {}
