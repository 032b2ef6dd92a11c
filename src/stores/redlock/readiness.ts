/**
 * The check before the first use of each connection: all clients must lead to different servers. A server behind two clients would have two
 * votes, and be a majority of three by itself.
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

/** ARGV[1]: the number of the call. Replies that number, and INFO or an empty text if the user may not ask. */
const WHO_SCRIPT = `
local info = redis.pcall('INFO', 'server')
return { ARGV[1], type(info) == 'string' and info or '' }
`;

/** A client may lose a command with its connection, and then never settles it. Later calls then repeat the check. */
const PATIENCE_MS = 1_000;

/** The server that each client leads to, as far as is known. */
export class Servers {
  readonly #clients: readonly RedisClient[];
  /** The run id of each server by node. A server has a new one after each start. */
  readonly #runIds: (string | undefined)[] = [];
  /** Nodes that lead to the server of another node, and never led to one of their own. */
  readonly #mistakes = new Map<number, HoldfastError>();
  readonly #warned = new Set<string>();

  constructor(clients: readonly RedisClient[]) {
    this.#clients = clients;
  }

  /**
   * Notes the server that a node leads to. Throws if another node leads to the same one. A node that had a server of its own before has no
   * vote until it is back there, and the others go on.
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

  /** Throws if the clients were wrong from the beginning. */
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

/** A server that reports its identity before the first call on each connection. */
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
   * After a lost connection the client may connect to another server, and send the unanswered calls there. Answers of such calls do not
   * count.
   */
  async #ask<T>(call: (member: QuorumMember) => Promise<T>): Promise<T> {
    const { losses } = this.#connection;
    // Also after the check: calls keep their order.
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
        // After a failure the next call checks again.
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
  /** The number of lost connections when the check began. */
  readonly losses: number;
  readonly sinceMs: number;
  isDone: boolean;
  readonly done: Promise<void>;
}

/** The address of a client, as far as it shows it, without its credentials. */
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
