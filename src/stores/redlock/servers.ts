/**
 * The servers behind the clients. They must be different ones: a server that two clients lead to would have two votes, and be a
 * majority of three by itself.
 */
import {
  type AcquireAnswer,
  type AgreedGrant,
  type ClaimRef,
  type ClaimRequest,
  type GrantListener,
  type HoldfastError,
  invalid,
  type LookPage,
  type LookQuery,
  type QuorumMember,
  type RenewAnswer,
  type RenewRef,
  StoreUnavailableError,
  type Unsubscribe,
} from "../../store/index.ts";
import { type Connection, mapRedisError, nextCall, type RedisClient, replyTo } from "../redis/index.ts";

/** ARGV[1]: the number of the call. Replies that number, and what the server tells of itself, or nothing where the user may not ask. */
const WHO_SCRIPT = `
local info = redis.pcall('INFO', 'server')
return { ARGV[1], type(info) == 'string' and info or '' }
`;

/**
 * How long calls wait for the question of an earlier one. A client may lose a command together with its connection, and then
 * neither answers it nor fails it.
 */
const PATIENCE_MS = 1_000;

/** Which server each client leads to, as far as is known. */
export class Servers {
  readonly #clients: readonly RedisClient[];
  /** What each server is called since it was started, by node. */
  readonly #runIds: (string | undefined)[] = [];
  /** Nodes that lead to the server of another one, and have never led to one of their own. */
  readonly #mistakes = new Map<number, HoldfastError>();
  readonly #warned = new Set<string>();

  constructor(clients: readonly RedisClient[]) {
    this.#clients = clients;
  }

  /**
   * Takes note of the server that a node leads to. Throws when another node leads to the same one.
   *
   * One that had a server of its own before was led astray, by a name or an address that is another server's now. It has no vote until
   * it is back, and the others go on.
   */
  found(node: number, info: string): void {
    const runId = /^run_id:(\w+)/m.exec(info)?.[1];
    if (runId === undefined) this.#warn("UNKNOWN_SERVERS", unknownServers(this.#nameOf(node)));
    const other = this.#runIds.findIndex((each, index) => index !== node && each === runId);
    if (runId === undefined || other === -1) {
      this.#runIds[node] = runId;
      this.#mistakes.delete(node);
      return;
    }
    const [first, second] = [this.#nameOf(Math.min(node, other)), this.#nameOf(Math.max(node, other))];
    const what = `clients must connect to different servers, because each has one vote. ${first} and ${second} connect to the same server.`;
    if (this.#runIds[node] !== undefined) {
      const astray = `${what} Until ${this.#nameOf(node)} is connected to its own server again, it has no vote. Check names and addresses.`;
      this.#warn("SAME_SERVER", astray);
      throw new StoreUnavailableError(astray);
    }
    const error = invalid(`${what} Name each server once.`);
    this.#mistakes.set(node, error);
    throw error;
  }

  /** Throws when the clients were wrong from the beginning. Then no call is answered: others would count more servers than there are. */
  requireDistinct(): void {
    for (const error of this.#mistakes.values()) throw error;
  }

  #nameOf(node: number): string {
    const address = addressOf(this.#clients[node] as RedisClient);
    return address === undefined ? `clients[${node}]` : `clients[${node}] (${address})`;
  }

  #warn(code: string, message: string): void {
    if (this.#warned.has(code)) return;
    this.#warned.add(code);
    process.emitWarning(message, { type: "HoldfastWarning", code });
  }
}

/** One of them, which is asked nothing before it has told which one it is: once for each connection. */
export class Server implements QuorumMember {
  readonly name: string;
  readonly durability;
  readonly counts;
  readonly #node: number;
  readonly #member: QuorumMember;
  readonly #connection: Connection;
  readonly #servers: Servers;
  #asking: Asking | undefined;

  constructor(
    node: number,
    client: RedisClient,
    member: QuorumMember,
    connection: Connection,
    servers: Servers,
  ) {
    this.name = addressOf(client) ?? member.name;
    this.durability = member.durability;
    this.counts = member.counts;
    this.#node = node;
    this.#member = member;
    this.#connection = connection;
    this.#servers = servers;
  }

  acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    return this.#ask((member) => member.acquire(request));
  }

  renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    return this.#ask((member) => member.renew(refs));
  }

  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    return this.#ask((member) => member.release(refs));
  }

  confirm(ref: ClaimRef, own: bigint, agreed: AgreedGrant): Promise<boolean> {
    return this.#ask((member) => member.confirm(ref, own, agreed));
  }

  look(query: LookQuery): Promise<LookPage> {
    return this.#ask((member) => member.look(query));
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    return this.#member.onGrant(owner, listener);
  }

  close(): Promise<void> {
    return this.#member.close();
  }

  /**
   * A connection that is lost meanwhile may be followed by one to another server, and a client may send there by itself what the first one
   * did not answer. So the answer is nobody's then.
   */
  async #ask<T>(call: (member: QuorumMember) => Promise<T>): Promise<T> {
    const { losses } = this.#connection;
    // Also when it has told already: calls are sent in the order in which they came.
    await this.#known(losses);
    this.#servers.requireDistinct();
    const answer = await call(this.#member);
    if (losses !== this.#connection.losses) throw lostMeanwhile();
    this.#servers.requireDistinct();
    return answer;
  }

  #known(losses: number): Promise<void> {
    const nowMs = performance.now();
    const asking = this.#asking;
    if (asking?.losses === losses && (asking.isDone || nowMs - asking.sinceMs < PATIENCE_MS))
      return asking.done;
    const next: Asking = { losses, sinceMs: nowMs, isDone: false, done: this.#who(losses) };
    this.#asking = next;
    next.done.then(
      () => {
        next.isDone = true;
      },
      () => {
        // What failed is tried again by the next call.
        if (this.#asking === next) this.#asking = undefined;
      },
    );
    return next.done;
  }

  async #who(losses: number): Promise<void> {
    const number = nextCall();
    const words = [WHO_SCRIPT, "0", number];
    const info = await this.#connection
      .send("", "EVAL", words)
      .then((reply) => replyTo(number, reply, this.#connection, "")[1])
      .catch((error: unknown) => {
        throw mapRedisError(error);
      });
    if (losses !== this.#connection.losses) throw lostMeanwhile();
    this.#servers.found(this.#node, String(info));
  }
}

interface Asking {
  /** How many connections the client had lost when the server was asked. */
  readonly losses: number;
  readonly sinceMs: number;
  isDone: boolean;
  readonly done: Promise<void>;
}

/** Where a client connects to, as far as it says so. Without what it logs in with. */
export function addressOf(client: RedisClient): string | undefined {
  const options = (client.options ?? {}) as Address & { readonly socket?: Address };
  const { host, port, path } = options.socket ?? options;
  if (typeof path === "string") return path;
  return host === undefined && port === undefined ? undefined : `${host ?? "localhost"}:${port ?? 6379}`;
}

interface Address {
  readonly host?: string;
  readonly port?: number;
  readonly path?: string | null;
}

function lostMeanwhile(): StoreUnavailableError {
  return new StoreUnavailableError(
    "The connection was lost meanwhile, so the answer may be from another server.",
  );
}

function unknownServers(name: string): string {
  return `The server of ${name} refuses INFO to its user, so the store cannot check that all its clients connect to different servers. Grant +info, or check that yourself, as docs/stores/redlock.md shows.`;
}
