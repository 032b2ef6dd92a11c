/**
 * Requests over connections of a pool: one at a time over each, or two where connections of the pool can; pg calls that a pipeline.
 *
 * The server makes the two one after the other, and the next one is there when it has made the one before. Over two connections
 * it would work on both at once, and answer both late: docs/decisions/0022-what-a-change-costs-in-postgresql.md.
 */

import type { Timer } from "../../platform/index.ts";
import { StoreUnavailableError } from "../../store/index.ts";
import type { PostgresResult } from "./client.ts";
import type { Connections, PooledConnection, QueryPort } from "./connections.ts";

/** One that the server works on, and the next. More would wait for no gain, and behind more. */
const MOST_UNDER_WAY = 2;

/** After so long without an answer something holds up the connection, and others are not to wait behind that. */
const HELD_UP_MS = 50;

/** So long a connection is kept, so that the pool gets to replace those that have become too old for it. */
const KEPT_MS = 1_000;

export type Query = (connection: QueryPort) => Promise<PostgresResult>;

/** Makes a query over the connection that is in use, or over another one where that has enough to do or the query takes long. */
export type Over = (query: Query, takesLong: boolean) => Promise<PostgresResult>;

export function pipelineOf(connections: Connections): Over {
  const isPipelined = connections.pool.options?.pipeline === true;
  let shared: Session | undefined;
  return (query, takesLong) => {
    if (takesLong || !isPipelined) return new Session(connections).send(query);
    // The one before gives its connection back when it has all its answers.
    if (!shared?.hasRoom()) shared = new Session(connections);
    return shared.send(query);
  };
}

/** A connection from its first request until none is under way any more. Then it goes back to the pool. */
class Session {
  readonly #connections: Connections;
  readonly #sinceMs: number;
  readonly #opening: Promise<PooledConnection>;
  #connection: PooledConnection | undefined;
  #underWay = 0;
  #heardMs: number;
  #takesMore = true;
  #isBroken = false;

  constructor(connections: Connections) {
    this.#connections = connections;
    this.#sinceMs = connections.clock.monotonicMs();
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
    const nowMs = this.#connections.clock.monotonicMs();
    if (nowMs - this.#heardMs >= HELD_UP_MS || nowMs - this.#sinceMs >= KEPT_MS) return false;
    return this.#connection === undefined || !this.#connections.areWanted;
  }

  async send(query: Query): Promise<PostgresResult> {
    const { clock, timeoutMs } = this.#connections;
    let sentMs: number | undefined;
    let timer: Timer | undefined;
    this.#underWay++;
    try {
      const silence = new Promise<never>((_, reject) => {
        timer = clock.setTimer(timeoutMs, () => reject(this.#giveUp(sentMs)));
      });
      const answer = async () => {
        const connection = this.#connection ?? (await this.#opening);
        sentMs = clock.monotonicMs();
        const result = await query(connection);
        this.#connections.heard(connection);
        return result;
      };
      const result = await Promise.race([answer(), silence]);
      this.#heardMs = clock.monotonicMs();
      return result;
    } catch (error) {
      // A pool of pg does not use a connection again either on which a query has failed.
      this.#breakOff();
      throw error;
    } finally {
      timer?.cancel();
      if (--this.#underWay === 0) this.#giveBack();
    }
  }

  /** Others that are under way over the connection wait for the same silence. */
  #giveUp(sentMs: number | undefined): StoreUnavailableError {
    const { clock, timeoutMs } = this.#connections;
    this.#breakOff();
    if (sentMs !== undefined && clock.monotonicMs() - sentMs >= timeoutMs / 2)
      this.#connections.silent(sentMs);
    this.#giveBack();
    return new StoreUnavailableError(
      `PostgreSQL did not answer within ${timeoutMs} ms. The result of the request is unknown. The store replaces the connection.`,
    );
  }

  async #open(): Promise<PooledConnection> {
    // What is under way over it fails by itself. But an error that nobody listens for ends the process.
    const connection = await this.#connections.take(this.#breakOff);
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
    const connection = this.#connection;
    this.#connection = undefined;
    if (connection === undefined) return;
    if (this.#isBroken) this.#connections.discard(connection, this.#breakOff);
    else this.#connections.giveBack(connection, this.#breakOff);
  }
}
