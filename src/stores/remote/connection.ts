/**
 * The way to the servers: one link at a time, and another one when it breaks or the server is about to stop.
 *
 * Addresses are tried in turn. When none of them answers there is a pause, of 0.2 s at first and up to 10 s, different in
 * every client. Whatever is asked during a pause fails at once, as an outage; the client repeats it with the same claim.
 */

import type { session } from "../../protocol/index.ts";
import { type GrantListener, type HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import { Link, type LinkEvents } from "./link.ts";
import type { RemoteSettings } from "./options.ts";
import type { WaitingClaims } from "./waiting-claims.ts";

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 10_000;

/** A link that ends sooner than this after it opened counts as a failure, so that a server which ends them all is not stormed. */
const STEADY_MS = 1_000;

/** How long a server that was left is given to answer what it was asked. */
const LEAVING_MS = 10_000;

/** Somebody who waits for a link. */
interface Waiter {
  resolve(link: Link): void;
  reject(error: HoldfastError): void;
}

export class Connection {
  readonly #settings: RemoteSettings;
  readonly #agent: string;
  readonly #waiting: WaitingClaims;
  /** Says whether a server will do; otherwise why not. */
  readonly #judge: (welcome: session.Welcome) => HoldfastError | undefined;
  readonly #listeners = new Map<string, GrantListener>();
  readonly #links = new Set<Link>();
  #current: Link | undefined;
  /** The one that is being opened. */
  #opening: Link | undefined;
  #openedMs = 0;
  #waiters: Waiter[] = [];
  #next = 0;
  /** How many attempts have failed since the last success. */
  #failures = 0;
  #pause: NodeJS.Timeout | undefined;
  #lastError: HoldfastError = new StoreUnavailableError(
    "No lock server was reached yet. Check their addresses.",
  );
  #closed: HoldfastError | undefined;

  constructor(
    settings: RemoteSettings,
    agent: string,
    waiting: WaitingClaims,
    judge: (welcome: session.Welcome) => HoldfastError | undefined,
  ) {
    this.#settings = settings;
    this.#agent = agent;
    this.#waiting = waiting;
    this.#judge = judge;
    // Clients do not all begin with the same server.
    this.#next = Math.floor(Math.random() * settings.urls.length);
  }

  /** The link to ask on, if there is one. */
  get current(): Link | undefined {
    return this.#current;
  }

  /** A link, as soon as there is one. Rejects when no server answers. */
  link(): Promise<Link> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (this.#current !== undefined) return Promise.resolve(this.#current);
    if (this.#pause !== undefined) return Promise.reject(this.#lastError);
    return new Promise((resolve, reject) => {
      this.#waiters.push({ resolve, reject });
      this.#openNext();
    });
  }

  listen(owner: string, listener: GrantListener): () => void {
    this.#listeners.set(owner, listener);
    if (this.#current !== undefined) this.#current.listen(owner);
    else if (this.#pause === undefined && this.#closed === undefined) this.#openNext();
    return () => {
      if (this.#listeners.get(owner) !== listener) return;
      this.#listeners.delete(owner);
      this.#current?.unlisten(owner);
    };
  }

  close(error: HoldfastError): void {
    if (this.#closed !== undefined) return;
    this.#closed = error;
    clearTimeout(this.#pause);
    this.#listeners.clear();
    this.#current = undefined;
    this.#opening = undefined;
    for (const link of [...this.#links]) link.close(error);
    this.#rejectWaiters(error);
  }

  readonly #events: LinkEvents = {
    onOpen: (link, welcome) => {
      const objection = this.#judge(welcome);
      if (objection !== undefined) {
        link.close(objection);
        return;
      }
      this.#opening = undefined;
      this.#current = link;
      this.#openedMs = performance.now();
      for (const owner of this.#listeners.keys()) link.listen(owner);
      const waiters = this.#waiters;
      this.#waiters = [];
      for (const waiter of waiters) waiter.resolve(link);
      for (const [owner, refs] of this.#waiting.byOwner()) this.#listeners.get(owner)?.(refs);
    },
    onGoodbye: (link) => {
      if (this.#current === link) {
        this.#current = undefined;
        this.#failures = 0;
        this.#openNext();
      }
      link.leave(LEAVING_MS);
    },
    onGranted: (owner, ref) => this.#listeners.get(owner)?.([ref]),
    onAcquired: (request, answer) => this.#waiting.asked(request, answer),
    onClosed: (link, error) => {
      this.#links.delete(link);
      if (this.#closed !== undefined) return;
      if (this.#current === link) {
        this.#current = undefined;
        this.#lastError = error;
        this.#dropped();
        this.#goOn();
      } else if (this.#opening === link) {
        this.#opening = undefined;
        this.#lastError = error;
        this.#failures++;
        this.#goOn();
      }
    },
  };

  /** A link broke that had opened. The pause before the next round, if there is one, is the shortest. */
  #dropped(): void {
    const wasSteady = performance.now() - this.#openedMs >= STEADY_MS;
    this.#failures = wasSteady ? 0 : Math.min(this.#failures + 1, this.#settings.urls.length);
  }

  /** Tries the next server, at once or after a pause. */
  #goOn(): void {
    const { urls } = this.#settings;
    if (this.#failures % urls.length !== 0 || this.#failures === 0) {
      this.#openNext();
      return;
    }
    this.#rejectWaiters(this.#lastError);
    const rounds = Math.min(this.#failures / urls.length - 1, 10);
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** rounds, LONGEST_PAUSE_MS) * (0.5 + Math.random() / 2);
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      // Somebody may be waiting to hear of a grant. Whoever asks opens a link anyway.
      if (this.#listeners.size > 0) this.#openNext();
    }, pauseMs).unref();
  }

  #openNext(): void {
    if (this.#opening !== undefined || this.#closed !== undefined) return;
    const { urls, token, tls, connectTimeoutMs, silenceMs } = this.#settings;
    const url = urls[this.#next++ % urls.length] as string;
    const link = new Link({ url, token, tls, connectTimeoutMs, silenceMs }, this.#agent, this.#events);
    this.#links.add(link);
    this.#opening = link;
  }

  #rejectWaiters(error: HoldfastError): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.reject(error);
  }
}
