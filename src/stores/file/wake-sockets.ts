/**
 * How processes of one machine wake each other: each store has a Unix socket, and whoever has granted a claim of
 * its writes a line to it.
 *
 * A socket has a name that nobody else ever has. So a socket that refuses connections is one whose process is gone, for good, and can be
 * removed by anybody who notices. All of this is for hints only: whatever fails costs the time to a heartbeat.
 */
import { randomUUID } from "node:crypto";
import { chmodSync, mkdtempSync, readdirSync, rmdirSync, statSync, unlinkSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { makeFolder } from "../../platform/index.ts";

/** What goes from one process to another. */
export interface SentWake {
  readonly owner: string;
  readonly key: string;
  readonly id: string;
  readonly fence: bigint;
}

export interface WakeSocketsOptions {
  readonly folder: string;
  onWake(wake: SentWake): void;
  /** Nobody listens at this socket any more. */
  onDead(socket: string): void;
}

/** What fits into the address of a Unix socket everywhere, with the zero at its end. */
const MAX_PATH_BYTES = 103;
/** A connection that was not used for so long is closed. */
const IDLE_MS = 10_000;
/** So long may closing wait until the last lines are written. Whoever does not read them is stopped, or its backlog is full. */
const LAST_LINES_MS = 200;
/** Nobody has so many peers, and nobody writes such lines. */
const MAX_CONNECTIONS = 1_000;
const MAX_LINE = 16_384;
/** A socket without an owner may be one that is just being made. */
const ORPHAN_MS = 60_000;
const PREFIX = "holdfast-";

export class WakeSockets {
  readonly #options: WakeSocketsOptions;
  readonly #server: Server;
  readonly #incoming = new Set<Socket>();
  readonly #outgoing = new Map<string, Socket>();
  #starting: Promise<string> | undefined;
  #path: string | undefined;
  #closed = false;

  constructor(options: WakeSocketsOptions) {
    this.#options = options;
    this.#server = createServer((socket) => this.#receive(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
    // What goes wrong with one connection is told there.
    this.#server.on("error", () => {});
    this.#server.unref();
  }

  /** Listens, and resolves to the path under which others can be told of it. */
  start(): Promise<string> {
    this.#starting ??= this.#listen().catch((error: unknown) => {
      this.#starting = undefined;
      throw error;
    });
    return this.#starting;
  }

  send(path: string, { owner, key, id, fence }: SentWake): void {
    if (this.#closed) return;
    const socket = this.#outgoing.get(path) ?? this.#connect(path);
    socket.write(`${JSON.stringify([owner, key, id, String(fence)])}\n`);
  }

  /** Looks for sockets of processes that are gone: among those that somebody has named, and those that nobody has. */
  async clean(named: readonly string[]): Promise<void> {
    const candidates = new Set([...named, ...this.#orphans(new Set(named))]);
    for (const path of candidates) {
      if (this.#closed) return;
      if (path !== this.#path && (await isDead(path))) this.#bury(path);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const socket of this.#incoming) socket.destroy();
    // A process often ends right after a release: whoever is granted by that would learn of it at its next heartbeat only.
    await Promise.all([...this.#outgoing.values()].map(finish));
    await this.#starting?.catch(() => {});
    if (!this.#server.listening) return;
    // Closing the server removes its socket.
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
    if (this.#path !== undefined) removeFolderOf(this.#path);
  }

  async #listen(): Promise<string> {
    const path = newPath(this.#options.folder);
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      // The primary process of a cluster would listen in place of its worker, and outlive it.
      this.#server.listen({ path, exclusive: true }, () => {
        this.#server.removeListener("error", reject);
        resolve();
      });
    });
    this.#path = path;
    return path;
  }

  #receive(socket: Socket): void {
    this.#incoming.add(socket);
    socket.unref();
    socket.setEncoding("utf8");
    let rest = "";
    socket.on("data", (text: string) => {
      const lines = `${rest}${text}`.split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#hear(line);
      if (rest.length > MAX_LINE) socket.destroy();
    });
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#incoming.delete(socket));
  }

  #hear(line: string): void {
    const wake = parse(line);
    if (wake !== undefined && !this.#closed) this.#options.onWake(wake);
  }

  #connect(path: string): Socket {
    const socket = connect(path);
    this.#outgoing.set(path, socket);
    socket.unref();
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (isGone(error)) this.#bury(path);
    });
    socket.on("close", () => {
      if (this.#outgoing.get(path) === socket) this.#outgoing.delete(path);
    });
    return socket;
  }

  #bury(path: string): void {
    if (this.#closed) return;
    this.#options.onDead(path);
    if (!basename(path).startsWith(PREFIX)) return;
    try {
      unlinkSync(path);
    } catch {
      // Somebody else was quicker, or it is another user's.
    }
    removeFolderOf(path);
  }

  /** Sockets of processes that were killed before anybody knew them. */
  #orphans(named: ReadonlySet<string>): string[] {
    const folder = wakeFolder(this.#options.folder);
    const orphans: string[] = [];
    for (const name of namesIn(folder)) {
      const path = join(folder, name);
      if (!named.has(path) && name.startsWith(PREFIX) && ageMs(path) > ORPHAN_MS) orphans.push(path);
    }
    return orphans;
  }
}

/** Resolves when all that was written to a socket is on its way, and the socket is closed. */
function finish(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once("close", () => resolve());
    if (socket.destroyed) resolve();
    socket.ref();
    const timer = setTimeout(() => socket.destroy(), LAST_LINES_MS);
    socket.end(() => {
      clearTimeout(timer);
      socket.destroy();
    });
  });
}

function wakeFolder(folder: string): string {
  return join(folder, "wake");
}

/** In the folder itself, so that all who can use that can reach it; in the system's for temporary files where that is too long a path. */
function newPath(folder: string): string {
  const name = `${PREFIX}${randomUUID().slice(0, 18)}`;
  const path = join(wakeFolder(folder), name);
  if (Buffer.byteLength(path) <= MAX_PATH_BYTES) {
    makeFolder(wakeFolder(folder));
    return path;
  }
  const short = mkdtempSync(join(tmpdir(), PREFIX));
  chmodSync(short, 0o755);
  return join(short, name);
}

/** A folder that was made for one socket goes with it. */
function removeFolderOf(path: string): void {
  const folder = dirname(path);
  if (!basename(folder).startsWith(PREFIX)) return;
  try {
    rmdirSync(folder);
  } catch {
    // It has gone already.
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function ageMs(path: string): number {
  try {
    return Date.now() - statSync(path).mtimeMs;
  } catch {
    return 0;
  }
}

function isGone({ code }: NodeJS.ErrnoException): boolean {
  return code === "ECONNREFUSED" || code === "ENOENT";
}

/** Whether nobody listens there. Whoever is merely busy or stopped still does. */
function isDead(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const settle = (dead: boolean) => {
      socket.destroy();
      resolve(dead);
    };
    socket.once("connect", () => settle(false));
    socket.once("error", (error: NodeJS.ErrnoException) => settle(isGone(error)));
    socket.setTimeout(IDLE_MS, () => settle(false));
  });
}

function parse(line: string): SentWake | undefined {
  try {
    const words: unknown = JSON.parse(line);
    if (!Array.isArray(words) || words.length !== 4) return undefined;
    if (words.some((word) => typeof word !== "string")) return undefined;
    const [owner, key, id, fence] = words as [string, string, string, string];
    return { owner, key, id, fence: BigInt(fence) };
  } catch {
    return undefined;
  }
}
