/**
 * One connection of a pool that carries several requests at a time, where connections of the pool can: pg calls that a pipeline.
 *
 * The server makes them one after the other, and the next one is there when it has made the one before. Over two connections
 * it would work on both at once, and answer both late: docs/decisions/0022-what-a-change-costs-in-postgresql.md.
 */
import type { Clock } from "../../core/index.ts";
import type { PostgresResult } from "./client.ts";
import type { Statement } from "./statements.ts";

/** A connection that is taken out of a pool of pg. */
export interface PooledConnection extends QueryPort {
  readonly pipeline?: boolean;
  removeListener(event: "error", listener: (error: Error) => void): unknown;
  release(destroy?: boolean): void;
}

/** One that the server works on, and the next. More would wait for no gain, and behind more. */
const MOST_UNDER_WAY = 2;

/** After so long without an answer something holds up the connection, and others are not to wait behind that. */
const HELD_UP_MS = 50;

/** So long a connection is kept, so that the pool gets to replace those that have become too old for it. */
const KEPT_MS = 1_000;

export type Over = (query: (connection: QueryPort) => Promise<PostgresResult>) => Promise<PostgresResult>;

/** Whatever of pg takes statements: a pool, a client, or a connection of a pool. */
export interface QueryPort {
  query(text: string, values?: string[]): Promise<PostgresResult>;
  query(statement: Statement): Promise<PostgresResult>;
}

/** Where connections come from. */
export interface ConnectionSource {
  /** Listens for errors of the connection from the moment when it is there. */
  connect(onError: () => void): Promise<PooledConnection>;
  /** Whether somebody waits for a connection. */
  isWanted(): boolean;
}

/** Makes queries over the connection that is in use, or over another one where that has enough to do. */
export function pipelineOf(source: ConnectionSource, clock: Clock): Over {
  let session: Session | undefined;
  return (query) => {
    // The one before gives its connection back when it has all its answers.
    if (!session?.hasRoom()) session = new Session(source, clock);
    return session.send(query);
  };
}

/** A connection from its first request until none is under way any more. Then it goes back to the pool. */
class Session {
  readonly #source: ConnectionSource;
  readonly #clock: Clock;
  readonly #sinceMs: number;
  readonly #opening: Promise<PooledConnection>;
  #connection: PooledConnection | undefined;
  #underWay = 0;
  #heardMs: number;
  #takesMore = true;
  #isBroken = false;

  constructor(source: ConnectionSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
    this.#sinceMs = clock.monotonicMs();
    this.#heardMs = this.#sinceMs;
    this.#opening = this.#open();
  }

  /**
   * While there is always one more to send, a connection would never be given back. (1) The pool has no other one. (2) A query of
   * the application waits for it, or a look or a sweep of this store. (3) It waits for as long as there are locks to take.
   * So nothing more is sent over a connection that somebody waits for.
   */
  hasRoom(): boolean {
    if (!this.#takesMore || this.#underWay >= MOST_UNDER_WAY) return false;
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#heardMs >= HELD_UP_MS || nowMs - this.#sinceMs >= KEPT_MS) return false;
    return this.#connection === undefined || !this.#source.isWanted();
  }

  async send(query: (connection: PooledConnection) => Promise<PostgresResult>): Promise<PostgresResult> {
    this.#underWay++;
    try {
      const result = await query(this.#connection ?? (await this.#opening));
      this.#heardMs = this.#clock.monotonicMs();
      return result;
    } catch (error) {
      // A pool of pg does not use a connection again either on which a query has failed.
      this.#breakOff();
      throw error;
    } finally {
      if (--this.#underWay === 0) this.#giveBack();
    }
  }

  async #open(): Promise<PooledConnection> {
    // What is under way over it fails by itself. But an error that nobody listens for ends the process.
    const connection = await this.#source.connect(this.#breakOff);
    // A pg that is too old for the option makes one query after the other.
    if (connection.pipeline !== true) this.#takesMore = false;
    this.#connection = connection;
    return connection;
  }

  readonly #breakOff = () => {
    this.#takesMore = false;
    this.#isBroken = true;
  };

  #giveBack(): void {
    this.#takesMore = false;
    this.#connection?.removeListener("error", this.#breakOff);
    this.#connection?.release(this.#isBroken);
  }
}
