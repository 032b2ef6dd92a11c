/**
 * Real Redis servers for tests, on free ports of this machine, in temporary folders.
 *
 * `REDIS_SERVER` names another program that speaks the same, such as `valkey-server`.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";

export interface RedisServer {
  readonly port: number;
  /** The process that runs now; another one after `restart`. */
  readonly process: ChildProcess;
  /** Sends one command on a connection of its own. */
  command(...words: readonly (string | number)[]): Promise<unknown>;
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

export interface RedisServerOptions {
  /** Settings as on the command line: "--appendonly", "yes". */
  readonly settings?: readonly string[];
  /** The text of a configuration file, for those that want one to write to. Given the port. */
  readonly configuration?: string;
  /** The highest port that will do. */
  readonly maxPort?: number;
  /** The only port that will do. */
  readonly port?: number;
}

/** Starts a server with these settings, on a free port unless told which, and waits until it answers. */
export function startRedis(settings: readonly string[] = [], port?: number): Promise<RedisServer> {
  return startRedisServer(port === undefined ? { settings } : { settings, port });
}

/** Somebody else may take a free port before the server does; then another one is tried. */
export async function startRedisServer(options: RedisServerOptions): Promise<RedisServer> {
  const binary = redisBinary();
  for (let attempt = 1; ; attempt++) {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), "holdfast-redis-")));
    const server = new Server(binary, options.port ?? (await freePort(options.maxPort)), folder, options);
    try {
      await server.restart();
      return server;
    } catch (error) {
      await server.stop();
      if (attempt === 5) throw error;
    }
  }
}

/**
 * Whether tests against Redis can run here. Where they cannot, it says so loudly and the tests count as skipped; in
 * continuous integration that is a failure, because nobody would notice.
 */
export function canRunRedis(): boolean {
  try {
    redisBinary();
    return true;
  } catch (error) {
    if (process.env["CI"] === "true") throw error;
    console.warn(`\n*** SKIPPED: all tests against Redis. ${(error as Error).message} ***\n`);
    return false;
  }
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

/** Waits until the check holds, and fails naming what did not come about. */
export async function until(what: string, check: () => Promise<boolean>, withinMs = 30_000): Promise<void> {
  const end = performance.now() + withinMs;
  while (!(await check().catch(() => false))) {
    if (performance.now() > end) throw new Error(`It did not come about within ${withinMs} ms that ${what}.`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

class Server implements RedisServer {
  readonly port: number;
  readonly #binary: string;
  readonly #folder: string;
  readonly #args: readonly string[];
  #process: ChildProcess | undefined;

  constructor(binary: string, port: number, folder: string, options: RedisServerOptions) {
    this.port = port;
    this.#binary = binary;
    this.#folder = folder;
    const { settings = [], configuration } = options;
    const file = join(folder, "redis.conf");
    if (configuration !== undefined) writeFileSync(file, configuration);
    const common = ["--port", `${port}`, "--bind", "127.0.0.1", "--dir", folder];
    const save = configuration === undefined ? ["--save", ""] : [];
    this.#args = [...(configuration === undefined ? [] : [file]), ...common, ...save, ...settings];
  }

  get process(): ChildProcess {
    if (this.#process === undefined) throw new Error("The server has not been started.");
    return this.#process;
  }

  async restart(): Promise<void> {
    const server = spawn(this.#binary, this.#args, { stdio: "ignore" });
    this.#process = server;
    server.on("error", () => {});
    guard(server.pid, this.#folder);
    await until(`a server answers on port ${this.port}`, async () => {
      if (hasEnded(server)) return true;
      const info = await ask(this.port, "INFO");
      return info.includes(`process_id:${server.pid}\r`) && !info.includes("loading:1");
    });
    if (hasEnded(server)) throw new Error(`The server on port ${this.port} ended at once.`);
  }

  async command(...words: readonly (string | number)[]): Promise<unknown> {
    const client = new Redis(this.port, "127.0.0.1", {
      retryStrategy: () => null,
      lazyConnect: true,
      // A server that is busy with a script answers nothing but the command that ends it.
      enableReadyCheck: false,
    });
    client.on("error", () => {});
    try {
      const [name = "", ...args] = words;
      return await client.call(`${name}`, ...args);
    } finally {
      client.disconnect();
    }
  }

  async kill(): Promise<void> {
    const server = this.#process;
    if (server === undefined || server.pid === undefined || hasEnded(server)) return;
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGKILL");
    await ended;
  }

  pause(): void {
    this.process.kill("SIGSTOP");
  }

  resume(): void {
    this.process.kill("SIGCONT");
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function hasEnded(server: ChildProcess): boolean {
  return server.pid === undefined || server.exitCode !== null || server.signalCode !== null;
}

let binary: string | undefined;

/** Installs Debian's package where that is possible. Tells once which engine the tests of this process run against. */
function redisBinary(): string {
  if (binary !== undefined) return binary;
  const name = process.env["REDIS_SERVER"] ?? "redis-server";
  const version = versionOf(name) ?? (name === "redis-server" && install() ? versionOf(name) : undefined);
  if (version === undefined) {
    throw new Error(`${name} is not installed. Install it, or run as root on Debian.`);
  }
  console.log(`Tests run against ${name}: ${version}`);
  binary = name;
  return name;
}

function versionOf(name: string): string | undefined {
  try {
    const text = execFileSync(name, ["--version"], { encoding: "utf8" });
    return /v=([\d.]+)/.exec(text)?.[1] ?? text.trim();
  } catch {
    return undefined;
  }
}

function install(): boolean {
  if (process.getuid?.() !== 0) return false;
  // Several test files may come here at the same time: whoever is second waits for the first.
  const options = ["-qq", "-y", "-o", "DPkg::Lock::Timeout=120"];
  const environment = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  for (const verb of [["install"], ["update"], ["install"]]) {
    try {
      const rest = verb[0] === "install" ? ["--no-install-recommends", "redis-server"] : [];
      execFileSync("apt-get", [...verb, ...options, ...rest], { stdio: "ignore", env: environment });
      if (verb[0] === "install") return true;
    } catch {
      // The last attempt decides.
    }
  }
  return false;
}

/**
 * One process that outlives this one by a moment, however this one ends, and ends the servers that are left. It
 * recognises them by the folder that they run in, because a process id may belong to somebody else by then.
 */
const guardScript = `
left=""
while read -r pid folder; do left="$left $pid:$folder"; done
for each in $left; do
  [ "$(readlink "/proc/\${each%%:*}/cwd")" = "\${each#*:}" ] && kill -9 "\${each%%:*}"
  rm -rf "\${each#*:}"
done`;

let guardian: ChildProcess | undefined;

function guard(pid: number | undefined, folder: string): void {
  if (guardian === undefined) {
    guardian = spawn("sh", ["-c", guardScript], { stdio: ["pipe", "ignore", "ignore"], detached: true });
    guardian.unref();
    (guardian.stdin as unknown as { unref(): void }).unref();
  }
  guardian.stdin?.write(`${pid ?? 0} ${folder}\n`);
}

function ask(port: number, line: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = "";
    const socket = connect(port, "127.0.0.1", () => socket.write(`${line}\r\n`));
    socket.setTimeout(1_000, () => socket.destroy());
    socket.setEncoding("utf8").on("data", (text: string) => {
      answer += text;
      const length = /^\$(\d+)\r\n/.exec(answer);
      if (length === null || Buffer.byteLength(answer) >= Number(length[1]) + length[0].length) socket.end();
    });
    socket.once("error", reject);
    socket.once("close", () => resolve(answer));
  });
}
