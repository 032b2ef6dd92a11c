/**
 * Wakes waiters in other processes of the machine. Each store listens at a Unix socket in the folder `wake`, and registers each of its owners
 * there: a symbolic link named after the owner leads to the socket. A process that grants a claim writes a line to that socket.
 *
 * The name of a socket is never used again. So a socket that refuses connections belongs to a process that has ended, and any process may remove it.
 * A wake-up is a hint: if one is lost, the waiter learns of its grant with its next heartbeat.
 */
import { createHash, randomUUID } from "node:crypto";
import {
  chmodSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
} from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { makeFolder } from "../../platform/index.ts";

export interface SentWake {
  readonly owner: string;
  readonly key: string;
  readonly id: string;
  readonly fence: bigint;
}

/** The longest address of a Unix socket that all systems take, without the zero at its end. */
const MAX_PATH_BYTES = 103;
/** A connection that was idle for so long is closed. */
const IDLE_MS = 10_000;
/** The time that closing waits until the last lines are written. */
const LAST_LINES_MS = 200;
const MAX_CONNECTIONS = 1_000;
const MAX_LINE = 16_384;
/** An unregistered socket that is younger may belong to a process that is just making it. */
const ORPHAN_MS = 60_000;
const PREFIX = "holdfast-";

export class WakeSockets {
  readonly #folder: string;
  readonly #onWake: (wake: SentWake) => void;
  readonly #server: Server;
  readonly #incoming = new Set<Socket>();
  readonly #outgoing = new Map<string, Socket>();
  readonly #owners = new Set<string>();
  #starting: Promise<string> | undefined;
  #closed = false;

  constructor(folder: string, onWake: (wake: SentWake) => void) {
    this.#folder = join(folder, "wake");
    this.#onWake = onWake;
    this.#server = createServer((socket) => this.#receive(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
    // Each connection reports its own errors.
    this.#server.on("error", () => {});
    this.#server.unref();
  }

  /** Directs the wake-ups of an owner to this process. Resolves to the function that ends that. */
  async register(owner: string): Promise<() => void> {
    this.#starting ??= this.#listen().catch((error: unknown) => {
      this.#starting = undefined;
      throw error;
    });
    const path = await this.#starting;
    const link = this.#linkOf(owner);
    const target = dirname(path) === this.#folder ? basename(path) : path;
    const draft = `${link}.${randomUUID().slice(0, 8)}`;
    symlinkSync(target, draft);
    renameSync(draft, link);
    this.#owners.add(owner);
    return () => this.#forget(owner, path);
  }

  send({ owner, key, id, fence }: SentWake): void {
    const path = this.#targetOf(this.#linkOf(owner));
    if (this.#closed || path === undefined) return;
    const socket = this.#outgoing.get(path) ?? this.#connect(path);
    socket.write(`${JSON.stringify([owner, key, id, String(fence)])}\n`);
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const socket of this.#incoming) socket.destroy();
    // A process often ends right after a release, and the next holder waits for these lines.
    await Promise.all([...this.#outgoing.values()].map(finish));
    const path = await this.#starting?.catch(() => undefined);
    if (path === undefined) return;
    for (const owner of this.#owners) this.#forget(owner, path);
    // Closing the server removes its socket.
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
    removeFolderOf(path);
  }

  async #listen(): Promise<string> {
    makeFolder(this.#folder);
    const path = newPath(this.#folder);
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      // Without `exclusive`, the primary process of a cluster would listen in place of its worker, and outlive it.
      this.#server.listen({ path, exclusive: true }, () => {
        this.#server.removeListener("error", reject);
        resolve();
      });
    });
    void this.#clean();
    return path;
  }

  /** Removes the sockets of processes that have ended, and the links to them. */
  async #clean(): Promise<void> {
    for (const name of namesIn(this.#folder)) {
      const link = join(this.#folder, name);
      const target = this.#targetOf(link);
      if (this.#closed || (target === undefined && ageMs(link) < ORPHAN_MS)) continue;
      if (!(await isDead(target ?? link))) continue;
      removeSocket(target ?? link);
      // The owner may have another socket by now.
      if (target !== undefined && this.#targetOf(link) === target) remove(link);
    }
  }

  #receive(socket: Socket): void {
    this.#incoming.add(socket);
    socket.unref();
    socket.setEncoding("utf8");
    let rest = "";
    socket.on("data", (text: string) => {
      const lines = `${rest}${text}`.split("\n");
      rest = lines.pop() ?? "";
      for (const wake of lines.map(parse)) if (wake !== undefined && !this.#closed) this.#onWake(wake);
      if (rest.length > MAX_LINE) socket.destroy();
    });
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#incoming.delete(socket));
  }

  #connect(path: string): Socket {
    const socket = connect(path);
    this.#outgoing.set(path, socket);
    socket.unref();
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (isGone(error)) removeSocket(path);
    });
    socket.on("close", () => {
      if (this.#outgoing.get(path) === socket) this.#outgoing.delete(path);
    });
    return socket;
  }

  #linkOf(owner: string): string {
    return join(this.#folder, createHash("sha256").update(owner).digest("hex").slice(0, 32));
  }

  /** The path that a link leads to; undefined if it is no link. */
  #targetOf(link: string): string | undefined {
    try {
      return resolve(this.#folder, readlinkSync(link));
    } catch {
      return undefined;
    }
  }

  #forget(owner: string, path: string): void {
    this.#owners.delete(owner);
    const link = this.#linkOf(owner);
    if (this.#targetOf(link) === path) remove(link);
  }
}

/** Resolves when all lines are written and the socket is closed, or after a while. */
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

/** In the folder, which all its users can reach; in the system's folder for temporary files if the path is too long. */
function newPath(folder: string): string {
  const name = `${PREFIX}${randomUUID().slice(0, 18)}`;
  const path = join(folder, name);
  if (Buffer.byteLength(path) <= MAX_PATH_BYTES) return path;
  const short = mkdtempSync(join(tmpdir(), PREFIX));
  chmodSync(short, 0o755);
  return join(short, name);
}

function removeSocket(path: string): void {
  if (!basename(path).startsWith(PREFIX)) return;
  remove(path);
  removeFolderOf(path);
}

/** Removes a folder that was made for one socket. */
function removeFolderOf(path: string): void {
  if (!basename(dirname(path)).startsWith(PREFIX)) return;
  try {
    rmdirSync(dirname(path));
  } catch {
    // Another process has removed it.
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // Another process has removed it, or it belongs to another user.
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
    return Date.now() - lstatSync(path).mtimeMs;
  } catch {
    return 0;
  }
}

function isGone({ code }: NodeJS.ErrnoException): boolean {
  return code === "ECONNREFUSED" || code === "ENOENT";
}

/** Whether no process listens at a socket. A process that is busy or stopped still listens. */
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
