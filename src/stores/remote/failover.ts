/**
 * Keeps a connection to one of the servers, and replaces it when it breaks or its server stops.
 *
 * The servers are tried in turn. After a failure of all of them comes a random backoff, of at most 0.2 s at first and 10 s later.
 * During a backoff every request fails at once with an outage; the client repeats it with the same claim.
 */

import type { session } from "../../protocol/index.ts";
import { type GrantListener, type HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import { Connection, type ConnectionEvents } from "./connection.ts";
import type { RemoteSettings } from "./options.ts";
import type { WaitingClaims } from "./waiting-claims.ts";

const MIN_BACKOFF_MS = 200;
const MAX_BACKOFF_MS = 10_000;

/** A connection that lasts less than this counts as a failure, so that a server which ends all of them gets a backoff. */
const STEADY_MS = 1_000;

/** The time for a server that stops to answer open requests. */
const LEAVE_TIMEOUT_MS = 10_000;

interface Waiter {
  resolve(connection: Connection): void;
  reject(error: HoldfastError): void;
}

export class Failover {
  readonly #settings: RemoteSettings;
  readonly #agent: string;
  readonly #waiting: WaitingClaims;
  /** Returns the reason not to use a server. */
  readonly #refusalOf: (welcome: session.Welcome) => HoldfastError | undefined;
  readonly #listeners = new Map<string, GrantListener>();
  readonly #connections = new Set<Connection>();
  #current: Connection | undefined;
  #opening: Connection | undefined;
  #openedMs = 0;
  #waiters: Waiter[] = [];
  #next: number;
  /** Failed attempts since the last success. */
  #failures = 0;
  #backoff: NodeJS.Timeout | undefined;
  #lastError: HoldfastError = new StoreUnavailableError(
    "No lock server was reached yet. Check the addresses.",
  );
  #closed: HoldfastError | undefined;

  constructor(
    settings: RemoteSettings,
    agent: string,
    waiting: WaitingClaims,
    refusalOf: (welcome: session.Welcome) => HoldfastError | undefined,
  ) {
    this.#settings = settings;
    this.#agent = agent;
    this.#waiting = waiting;
    this.#refusalOf = refusalOf;
    // Spreads clients over the servers.
    this.#next = Math.floor(Math.random() * settings.urls.length);
  }

  /** The open connection. */
  get current(): Connection | undefined {
    return this.#current;
  }

  /** Waits for an open connection. Rejects if no server answers. */
  connect(): Promise<Connection> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#current !== undefined) return Promise.resolve(this.#current);
    if (this.#backoff !== undefined) return Promise.reject(this.#lastError);
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
      this.#openNext();
    });
  }

  listen(owner: string, listener: GrantListener): () => void {
    this.#listeners.set(owner, listener);
    if (this.#current !== undefined) this.#current.listen(owner);
    else if (this.#backoff === undefined && this.#closed === undefined) this.#openNext();
    return () => {
      if (this.#listeners.get(owner) !== listener) return;
      this.#listeners.delete(owner);
      this.#current?.unlisten(owner);
    };
  }

  close(error: HoldfastError): void {
    if (this.#closed !== undefined) return;
    this.#closed = error;
    clearTimeout(this.#backoff);
    this.#listeners.clear();
    this.#current = undefined;
    this.#opening = undefined;
    for (const connection of [...this.#connections]) connection.close(error);
    this.#rejectWaiters(error);
  }

  readonly #events: ConnectionEvents = {
    onOpen: (connection, welcome) => {
      const refusal = this.#refusalOf(welcome);
      if (refusal !== undefined) {
        connection.close(refusal);
        return;
      }
      this.#opening = undefined;
      this.#current = connection;
      this.#openedMs = performance.now();
      for (const owner of this.#listeners.keys()) connection.listen(owner);
      const waiters = this.#waiters;
      this.#waiters = [];
      for (const waiter of waiters) waiter.resolve(connection);
      for (const [owner, refs] of this.#waiting.byOwner()) this.#listeners.get(owner)?.(refs);
    },
    onGoodbye: (connection) => {
      if (this.#current === connection) {
        this.#current = undefined;
        this.#failures = 0;
        this.#openNext();
      }
      connection.leave(LEAVE_TIMEOUT_MS);
    },
    onGranted: (owner, ref) => this.#listeners.get(owner)?.([ref]),
    onAcquired: (request, answer) => this.#waiting.asked(request, answer),
    onClosed: (connection, error) => {
      this.#connections.delete(connection);
      if (this.#closed !== undefined) return;
      if (this.#current === connection) {
        this.#current = undefined;
        this.#lastError = error;
        this.#dropped();
        this.#tryNext();
      } else if (this.#opening === connection) {
        this.#opening = undefined;
        this.#lastError = error;
        this.#failures++;
        this.#tryNext();
      }
    },
  };

  /** The open connection broke. The next backoff is the shortest. */
  #dropped(): void {
    const wasSteady = performance.now() - this.#openedMs >= STEADY_MS;
    this.#failures = wasSteady ? 0 : Math.min(this.#failures + 1, this.#settings.urls.length);
  }

  /** Tries the next server, at once or after a backoff. */
  #tryNext(): void {
    const { urls } = this.#settings;
    if (this.#failures % urls.length !== 0 || this.#failures === 0) {
      this.#openNext();
      return;
    }
    this.#rejectWaiters(this.#lastError);
    const rounds = Math.min(this.#failures / urls.length - 1, 10);
    const backoffMs = Math.min(MIN_BACKOFF_MS * 2 ** rounds, MAX_BACKOFF_MS) * (0.5 + Math.random() / 2);
    this.#backoff = setTimeout(() => {
      this.#backoff = undefined;
      // Listeners need a connection for pushed grants. A request opens one itself.
      if (this.#listeners.size > 0) this.#openNext();
    }, backoffMs).unref();
  }

  #openNext(): void {
    if (this.#opening !== undefined || this.#closed !== undefined) return;
    const { urls, token, tls, connectTimeoutMs, silenceMs } = this.#settings;
    const url = urls[this.#next++ % urls.length] as string;
    const connection = new Connection(
      { url, token, tls, connectTimeoutMs, silenceMs },
      this.#agent,
      this.#events,
    );
    this.#connections.add(connection);
    this.#opening = connection;
  }

  #rejectWaiters(error: HoldfastError): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.reject(error);
  }
}
