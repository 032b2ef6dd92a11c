/** What the store needs of a PostgreSQL client: `pg` as it is, and anything that can be made to look like this much of it. */
import { invalid } from "../../core/index.ts";

export interface PostgresResult {
  readonly rows: readonly unknown[];
}

/** Runs one statement with values for `$1`, `$2` and so on, in a transaction of its own. All values are texts. */
export interface PostgresClient {
  query(text: string, values?: string[]): Promise<PostgresResult>;
}

/** A session of its own for `LISTEN`: a `Client` of `pg` that is connected. */
export interface PostgresListener {
  query(text: string): Promise<unknown>;
  on(event: "notification", listener: (message: PostgresNotification) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "end", listener: () => void): unknown;
  end(): unknown;
  /** Lets the process end although the connection is open. */
  unref?(): unknown;
}

export interface PostgresNotification {
  readonly channel: string;
  readonly payload?: string | undefined;
}

/** What only a pool of `pg` has. */
interface PostgresPool extends PostgresClient {
  readonly totalCount: number;
  readonly options?: { readonly max?: number | null };
  connect(): Promise<PostgresListener & { release(destroy: boolean): void }>;
}

/** Opens a session that listens. Its `end` is called when it is of no more use. */
export type OpenListener = () => Promise<PostgresListener>;

export function checkClient(client: PostgresClient): PostgresClient {
  if (typeof Object(client).query === "function") return client;
  throw invalid(
    "client must be a Pool or a Client of pg, or an object with query(text, values), not " +
      `${client === null ? "null" : typeof client}.`,
  );
}

/** What `listener: undefined` stands for: a connection of the pool where there is one. */
export function poolListener(client: PostgresClient): OpenListener | undefined {
  if (!isPool(client)) return undefined;
  if (client.options?.max === 1) {
    throw invalid(
      "client must be a pool of at least 2 connections, as one of them listens. Raise its max, or pass listener: false.",
    );
  }
  return async () => {
    const connection = await client.connect();
    return {
      query: (text) => connection.query(text),
      on: (event: string, listener: (...args: never[]) => void) => connection.on(event as "end", listener),
      // Back in the pool it would go on listening, so it is not given back.
      end: () => connection.release(true),
      unref: () => connection.unref?.(),
    };
  };
}

/** Whether the user has closed it for good. */
export function isEnded(client: PostgresClient): boolean {
  const { ended, ending } = client as { ended?: unknown; ending?: unknown };
  return ended === true || ending === true;
}

/**
 * One statement after the other where the client is a single connection: `pg` is about to refuse a query while another one is
 * under way. A pool, and everything unknown, is taken to see to that itself.
 */
export function inTurn(client: PostgresClient): PostgresClient["query"] {
  if (!isOneConnection(client)) return (text, values) => client.query(text, values);
  let last: Promise<unknown> = Promise.resolve();
  return (text, values) => {
    const next = last.then(() => client.query(text, values));
    last = next.catch(() => {});
    return next;
  };
}

/** Whether requests can only go one after the other. */
export function isOneConnection(client: PostgresClient): boolean {
  const { connect } = client as { connect?: unknown };
  return !isPool(client) && typeof connect === "function";
}

function isPool(client: PostgresClient): client is PostgresPool {
  const { totalCount, connect } = client as Partial<PostgresPool>;
  return typeof totalCount === "number" && typeof connect === "function";
}
