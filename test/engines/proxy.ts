/**
 * A TCP proxy that stands between a client and a server and does what networks do: delays, falls silent, loses replies,
 * and ends a connection in the middle of a message.
 *
 * A rule decides over each piece of data when it arrives. TCP does not keep messages apart, so a piece may be a part of
 * a message or several; the small requests of a lock store arrive in one piece.
 */
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export type Fate =
  /** It arrives. */
  | "pass"
  /** It waits, and what comes after it in the same direction as well, until there is another rule. */
  | "hold"
  /** It never arrives. The connection is cut when the network heals, since the rest would make no sense. */
  | "lose"
  /** It does not arrive, and both ends see the connection reset. */
  | "cut"
  | { readonly delayMs: number }
  /** So many bytes of it arrive, and then both ends see the connection reset. */
  | { readonly cutAfterBytes: number };

export interface Piece {
  /** From the client to the server, or back. */
  readonly direction: "request" | "reply";
  readonly bytes: Buffer;
  /** The connection that it travels on: the same object for all its pieces. */
  readonly connection: ProxyConnection;
}

export interface ProxyConnection {
  /** Counts the connections of a proxy, from 1. */
  readonly number: number;
}

export type Rule = (piece: Piece) => Fate;

export interface NetworkProxy {
  readonly port: number;
  /** How many connections are open. */
  readonly connections: number;
  /** From now on this rule decides, also over what is being held. */
  decide(rule: Rule): void;
  /** Lets everything pass again, and takes connections again. */
  heal(): void;
  /** Resets all connections. New ones are taken. */
  cut(): void;
  /** The same, and new ones come to another port of this machine: what a failover does to those who know a name. */
  leadTo(port: number): void;
  /** Resets all connections, and each new one at once, until it heals. */
  refuse(): void;
  stop(): Promise<void>;
}

/** Nothing gets through in either direction, and no end notices: a partition. */
export const silence: Rule = () => "hold";

/** The server does what it is asked, and nobody learns of it. */
export const loseReplies: Rule = ({ direction }) => (direction === "reply" ? "lose" : "pass");

export function delayBy(delayMs: number): Rule {
  return () => ({ delayMs });
}

/** The next request that contains the text reaches the server, and its connection is reset before the reply. */
export function cutReplyTo(text: string): Rule {
  let asked: ProxyConnection | undefined;
  return ({ direction, bytes, connection }) => {
    if (direction === "request" && asked === undefined && bytes.includes(text)) asked = connection;
    return direction === "reply" && connection === asked ? "cut" : "pass";
  };
}

/** Of the next request that contains the text, so many bytes reach the server, and then its connection is reset. */
export function cutRequest(text: string, afterBytes: number): Rule {
  let done = false;
  return ({ direction, bytes }) => {
    if (done || direction === "reply" || !bytes.includes(text)) return "pass";
    done = true;
    return { cutAfterBytes: afterBytes };
  };
}

/** Starts a proxy in front of a port of this machine, on a free port. */
export async function startProxy(targetPort: number): Promise<NetworkProxy> {
  const proxy = new TcpProxy(targetPort);
  await proxy.listen();
  return proxy;
}

class TcpProxy implements NetworkProxy {
  #targetPort: number;
  readonly #server: Server;
  readonly #open = new Set<Connection>();
  #rule: Rule = () => "pass";
  #refusing = false;
  #count = 0;
  /** Wakes what is held, for the new rule to decide over it. */
  #wake: (() => void)[] = [];

  constructor(targetPort: number) {
    this.#targetPort = targetPort;
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.#accept(client));
  }

  async listen(): Promise<void> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  get connections(): number {
    return this.#open.size;
  }

  decide(rule: Rule): void {
    this.#rule = rule;
    const held = this.#wake;
    this.#wake = [];
    for (const wake of held) wake();
  }

  heal(): void {
    this.#refusing = false;
    for (const connection of this.#open) if (connection.hasLost) connection.reset();
    this.decide(() => "pass");
  }

  cut(): void {
    for (const connection of this.#open) connection.reset();
  }

  leadTo(port: number): void {
    this.#targetPort = port;
    this.cut();
  }

  refuse(): void {
    this.#refusing = true;
    this.cut();
  }

  async stop(): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    this.refuse();
    this.decide(() => "cut");
    await closed;
  }

  #accept(client: Socket): void {
    if (this.#refusing) {
      client.resetAndDestroy();
      return;
    }
    const server = connect({ port: this.#targetPort, host: "127.0.0.1", allowHalfOpen: true, noDelay: true });
    const connection = new Connection(++this.#count, client, server);
    this.#open.add(connection);
    void Promise.allSettled([
      this.#carry("request", client, server, connection),
      this.#carry("reply", server, client, connection),
    ]).then(() => this.#open.delete(connection));
  }

  /** Carries one direction, piece by piece: what comes later never overtakes what came before. */
  async #carry(direction: Piece["direction"], from: Socket, to: Socket, connection: Connection) {
    try {
      for await (const bytes of from as AsyncIterable<Buffer>) {
        if (!(await this.#deliver({ direction, bytes, connection }, to))) return;
      }
      to.end();
    } catch {
      // One end is gone, so the other one shall see that.
      connection.reset();
    }
  }

  /** Whether the connection goes on. */
  async #deliver(piece: Piece & { readonly connection: Connection }, to: Socket): Promise<boolean> {
    const { bytes, connection } = piece;
    let fate = this.#rule(piece);
    while (fate === "hold" && !connection.isReset) {
      await new Promise<void>((resolve) => this.#wake.push(resolve));
      fate = this.#rule(piece);
    }
    if (typeof fate === "object" && "delayMs" in fate) await sleep(fate.delayMs);
    if (connection.isReset) return false;
    if (fate === "lose") {
      connection.hasLost = true;
      return true;
    }
    if (fate === "cut") {
      connection.reset();
      return false;
    }
    if (typeof fate === "object" && "cutAfterBytes" in fate) {
      await send(to, bytes.subarray(0, fate.cutAfterBytes));
      connection.reset();
      return false;
    }
    await send(to, bytes);
    return true;
  }
}

class Connection implements ProxyConnection {
  readonly number: number;
  readonly #ends: readonly Socket[];
  isReset = false;
  hasLost = false;

  constructor(number: number, ...ends: readonly Socket[]) {
    this.number = number;
    this.#ends = ends;
    for (const end of ends) end.on("error", () => {});
  }

  reset(): void {
    this.isReset = true;
    for (const end of this.#ends) end.resetAndDestroy();
  }
}

function send(to: Socket, bytes: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    to.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}
