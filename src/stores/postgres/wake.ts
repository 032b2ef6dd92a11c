/**
 * Grants to other processes, as notifications. One session listens for all clients of a store: it opens for the first of them, is replaced
 * when it breaks, and ends with the last. A lost notification delays a waiter until its next heartbeat.
 *
 * A pooler in transaction mode answers `listen`, and then lends the session to another client. So the store sends each session a probe
 * through its own client. If the probe does not arrive, clients that are new to it poll, and for a while no other client tries to listen.
 * Clients that have listened before wait for a session that hears.
 */
import { createHash, randomUUID } from "node:crypto";
import type { Clock, Timer } from "../../platform/index.ts";
import { StoreUnavailableError } from "../../store/index.ts";
import type { OnWake, Wake } from "../cas/index.ts";
import type { OpenListener, PostgresListener } from "./client.ts";
import { mapError } from "./errors.ts";

/** How often to check the session: a network may drop it without a word. */
const CHECK_MS = 15_000;
/** How long to wait for a probe that the server has accepted. */
const PROBE_MS = 1_000;
/** The pause after a lost probe, in which no new client tries to listen. It doubles up to the maximum. */
const FIRST_DEAF_MS = 1_000;
const MAX_DEAF_MS = 60_000;
/** The pause before the next attempt to replace a session. It doubles up to the maximum. */
const FIRST_RETRY_MS = 50;
const MAX_RETRY_MS = 5_000;

interface Wanted {
  readonly onWake: OnWake;
  /** Whether the client has listened before. */
  known: boolean;
  resolve(): void;
  reject(error: unknown): void;
}

interface Session {
  readonly listener: PostgresListener;
  readonly channels: Set<string>;
  /** Undefined once the session has received it. */
  probe: string | undefined;
  onProbe: () => void;
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

  constructor(open: OpenListener, notify: Notify, clock: Clock, answerMs: number) {
    this.#open = open;
    this.#notify = notify;
    this.#clock = clock;
    this.#answerMs = answerMs;
  }

  /** Resolves when notifications of this owner arrive. */
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

  /** Checks the session now. */
  check(): void {
    if (this.#session !== undefined) this.#work();
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
      // A client that came since has started it again.
      if (this.#closed || this.#isWorking || nextMs === undefined) return;
      this.#timer = this.#clock.setTimer(nextMs, () => this.#work());
    });
  }

  /** Makes the session listen to all that is wanted. Resolves to the time until the next check. Does not throw. */
  async #workOff(): Promise<number | undefined> {
    try {
      while (this.#wanted.size > 0) {
        await this.#catchUp(await this.#opened());
        this.#retryMs = FIRST_RETRY_MS;
        if (this.#isCaughtUp()) return CHECK_MS;
      }
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
      // In the same turn as the last look at `#wanted`, or a client that came in between would wait for ever.
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
    const listener = await this.#answered(opening, () => {
      opening.then(end, ignore);
    });
    const session: Session = {
      listener,
      channels: new Set(),
      probe: randomUUID(),
      onProbe: ignore,
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
      if (payload !== undefined && payload === session.probe) session.onProbe();
      const wake = session.lost ? undefined : readPayload(payload);
      if (wake !== undefined) this.#wanted.get(channel)?.onWake(wake.key, wake.id, wake.fence);
    });
    listener.unref?.();
    this.#session = session;
    return session;
  }

  /** Starts and stops listening, or only checks that the session answers. */
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

  /** Throws unless a notification reaches the session. */
  async #prove(session: Session, channel: string): Promise<void> {
    const { probe } = session;
    if (probe === undefined) return;
    const heard = new Promise<void>((resolve) => {
      session.onProbe = resolve;
    });
    await this.#answered(this.#notify(channel, probe));
    await this.#within(PROBE_MS, heard, () => this.#beDeaf());
    session.probe = undefined;
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

/** Errors while closing are ignored. */
function end(listener: PostgresListener): void {
  void Promise.resolve()
    .then(() => listener.end())
    .catch(ignore);
}

function ignore(): void {}

/** The channel of one client. PostgreSQL cuts the names of channels at 63 bytes, and owners may be longer, so it is a digest. */
export function channelOf(owner: string): string {
  return `holdfast_${createHash("sha256").update(owner).digest("hex").slice(0, 32)}`;
}

/** At most 8,000 bytes: key and id have 640 bytes, which JSON may double, and a fence has 20 digits. */
export function payloadOf(key: string, { id, fence }: Wake): string {
  return JSON.stringify([key, id, String(fence)]);
}

/** Undefined for notifications of other programs: any user of the database may notify on any channel. */
function readPayload(payload: string | undefined): { key: string; id: string; fence: bigint } | undefined {
  try {
    const [key, id, fence] = JSON.parse(payload ?? "null") as unknown[];
    if (typeof key !== "string" || typeof id !== "string") return undefined;
    return typeof fence === "string" && /^\d{1,20}$/.test(fence)
      ? { key, id, fence: BigInt(fence) }
      : undefined;
  } catch {
    return undefined;
  }
}
