/**
 * What the real engines of the tests have in common: they are found or installed, run on free ports of this machine in
 * temporary folders, can be paused, killed and started again, and are gone when the tests are, however those end.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  chownSync,
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { guard } from "./guard.ts";

export interface Engine {
  readonly port: number;
  /** Where its files are until it is stopped. */
  readonly folder: string;
  /** The process that runs now; another one after `restart`. */
  readonly process: ChildProcess;
  /** Ends the process at once, as a crash would. Its files stay. */
  kill(): Promise<void>;
  /** Starts it again on the same port with what its files hold. */
  restart(): Promise<void>;
  /** Stops the process from doing anything, and lets it go on. */
  pause(): void;
  resume(): void;
  /** Ends it and removes what it left. */
  stop(): Promise<void>;
}

/** A user by number, as `spawn` takes it. Empty for the one that we are. */
export interface User {
  readonly uid?: number;
  readonly gid?: number;
}

export interface EngineOptions {
  /** The name in its folder's path. */
  readonly name: string;
  readonly program: string;
  /** The only port that will do; otherwise a free one is taken. */
  readonly port?: number;
  /** The highest port that will do. */
  readonly maxPort?: number;
  readonly runAs?: User;
  /** Whether its work is done by processes that it starts, so that a pause or a crash has to reach those as well. */
  readonly hasChildren?: boolean;
  /** Fills the empty folder before the first start. */
  prepare?(folder: string, port: number): Promise<void> | void;
  args(folder: string, port: number): readonly string[];
  /** Whether this very process answers, and not another one that took the port first. */
  isReady(engine: { readonly port: number; readonly pid: number; readonly folder: string }): Promise<boolean>;
}

const ATTEMPTS = 5;

/** Starts an engine and waits until it answers. Somebody else may take a free port before it does; then another is tried. */
export async function startEngine(options: EngineOptions): Promise<Engine> {
  for (let attempt = 1; ; attempt++) {
    const port = options.port ?? (await freePort(options.maxPort));
    const folder = realpathSync(mkdtempSync(join(tmpdir(), `holdfast-${options.name}-`)));
    const engine = new EngineProcess(options, port, folder);
    try {
      const { uid, gid } = options.runAs ?? {};
      if (uid !== undefined && gid !== undefined) chownSync(folder, uid, gid);
      // Also while it is being prepared: the tests may end meanwhile.
      guard(undefined, folder);
      await options.prepare?.(folder, port);
      await engine.restart();
      return engine;
    } catch (error) {
      await engine.stop();
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

class EngineProcess implements Engine {
  readonly port: number;
  readonly folder: string;
  readonly #options: EngineOptions;
  #process: ChildProcess | undefined;

  constructor(options: EngineOptions, port: number, folder: string) {
    this.#options = options;
    this.port = port;
    this.folder = folder;
  }

  get process(): ChildProcess {
    if (this.#process === undefined) throw new Error("The server has not been started.");
    return this.#process;
  }

  async restart(): Promise<void> {
    const { port, folder } = this;
    const server = this.#spawn();
    this.#process = server;
    server.on("error", () => {});
    guard(server.pid, folder);
    await until(`a server answers on port ${port}`, async () => {
      const { pid } = server;
      return pid === undefined || hasEnded(server) || this.#options.isReady({ port, pid, folder });
    });
    if (hasEnded(server)) {
      throw new Error(`The server on port ${port} ended at once. It said: ${this.#lastWords()}`);
    }
  }

  async kill(): Promise<void> {
    const server = this.#process;
    if (server === undefined || server.pid === undefined || hasEnded(server)) return;
    const ended = new Promise((done) => server.once("exit", done));
    const children = this.#signal("SIGKILL");
    await ended;
    // They may hold on to memory or files that the next start needs.
    await until("its children ended", async () => !children.some(isRunning));
  }

  pause(): void {
    this.#signal("SIGSTOP");
  }

  resume(): void {
    this.#signal("SIGCONT");
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #spawn(): ChildProcess {
    const { program, args, runAs } = this.#options;
    const log = openSync(this.#logPath, "a");
    try {
      return spawn(program.includes("/") ? resolve(program) : program, args(this.folder, this.port), {
        // The guard recognises it by this folder.
        cwd: this.folder,
        stdio: ["ignore", log, log],
        ...runAs,
      });
    } finally {
      closeSync(log);
    }
  }

  /** Signals the process and its children, and returns the children. */
  #signal(signal: NodeJS.Signals): readonly number[] {
    const { pid } = this.process;
    if (this.#options.hasChildren !== true || pid === undefined) {
      this.process.kill(signal);
      return [];
    }
    // A stopped parent starts no further child, and does not mend anything when it sees its children die.
    this.process.kill("SIGSTOP");
    const children = childrenOf(pid);
    for (const child of children) {
      try {
        process.kill(child, signal);
      } catch {
        // It has ended by itself.
      }
    }
    this.process.kill(signal);
    return children;
  }

  get #logPath(): string {
    return join(this.folder, "engine.log");
  }

  #lastWords(): string {
    return readFileSync(this.#logPath, "utf8").trim().split("\n").slice(-5).join("\n");
  }
}

export function hasEnded(server: ChildProcess): boolean {
  return server.pid === undefined || server.exitCode !== null || server.signalCode !== null;
}

/** The processes that a process has started. Only Linux tells by a file; elsewhere a pause reaches the parent alone. */
function childrenOf(pid: number): readonly number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
    return text === "" ? [] : text.split(" ").map(Number);
  } catch {
    return [];
  }
}

/** A process that has ended keeps its entry until somebody asks for its exit code, but not its folder. */
export function isRunning(pid: number): boolean {
  try {
    readlinkSync(`/proc/${pid}/cwd`);
    return true;
  } catch {
    return false;
  }
}

/** Engines that refuse to run as root run as nobody. */
export function unprivileged(): User {
  if (process.getuid?.() !== 0) return {};
  const number = (option: string) => Number(execFileSync("id", [option, "nobody"], { encoding: "utf8" }));
  return { uid: number("-u"), gid: number("-g") };
}

export function freePort(maxPort = 65_535): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port <= maxPort ? port : freePort(maxPort)));
    });
  });
}

/** Waits until the check holds. Fails with the event and the latest error of the check. */
export async function until(what: string, check: () => Promise<boolean>, withinMs = 30_000): Promise<void> {
  const end = performance.now() + withinMs;
  let cause: unknown;
  const holds = () =>
    check().catch((error: unknown) => {
      cause = error;
      return false;
    });
  while (!(await holds())) {
    if (performance.now() > end) {
      throw new Error(`Waited ${withinMs} ms in vain: ${what}. The latest error: ${cause}`, {
        cause,
      });
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}
