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
  on(event: "error", listener: (error: Error) => void): unknown;
  removeListener(event: "error", listener: (error: Error) => void): unknown;
  release(destroy?: boolean): void;
}

/** One that the server works on, and the next. More would wait for no gain, and behind more. */
const MOST_UNDER_WAY = 2;

/** After so long without an answer something holds up the connection, and others are not to wait behind that. */
const HELD_UP_MS = 50;

export type Over = (query: (connection: QueryPort) => Promise<PostgresResult>) => Promise<PostgresResult>;

/** Whatever of pg takes statements: a pool, a client, or a connection of a pool. */
export interface QueryPort {
  query(text: string, values?: string[]): Promise<PostgresResult>;
  query(statement: Statement): Promise<PostgresResult>;
}

/** Makes queries over the connection that is in use, or over another one where that has enough to do. */
export function pipelineOf(connect: () => Promise<PooledConnection>, clock: Clock): Over {
  let session: Session | undefined;
  return (query) => {
    // The one before gives its connection back when it has all its answers.
    if (!session?.hasRoom()) session = new Session(connect(), clock);
    return session.send(query);
  };
}

/** A connection from its first request until none is under way any more. Then it goes back to the pool. */
class Session {
  readonly #clock: Clock;
  readonly #opening: Promise<PooledConnection>;
  #connection: PooledConnection | undefined;
  #underWay = 0;
  #heardMs: number;
  #takesMore = true;
  #isBroken = false;

  constructor(opening: Promise<PooledConnection>, clock: Clock) {
    this.#clock = clock;
    this.#heardMs = clock.monotonicMs();
    this.#opening = this.#open(opening);
  }

  hasRoom(): boolean {
    return (
      this.#takesMore &&
      this.#underWay < MOST_UNDER_WAY &&
      this.#clock.monotonicMs() - this.#heardMs < HELD_UP_MS
    );
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

  async #open(opening: Promise<PooledConnection>): Promise<PooledConnection> {
    const connection = await opening;
    // What is under way over it fails by itself. But an error that nobody listens for ends the process.
    connection.on("error", this.#breakOff);
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
