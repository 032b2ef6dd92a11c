/**
 * Real Redis servers for tests, on free ports of this machine, in temporary folders.
 *
 * `REDIS_SERVER` names another program that speaks the same, such as `valkey-server`.
 */
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { Redis } from "ioredis";
import { type Engine, startEngine } from "./engine.ts";
import { canRun, findProgram } from "./program.ts";

export { freePort, until } from "./engine.ts";

export interface RedisServer extends Engine {
  /** Sends one command on a connection of its own. */
  command(...words: readonly (string | number)[]): Promise<unknown>;
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

/** Starts a server and waits until it answers and has loaded what its files hold. */
export async function startRedisServer(options: RedisServerOptions): Promise<RedisServer> {
  const { settings = [], configuration, maxPort, port } = options;
  const file = (folder: string) => join(folder, "redis.conf");
  const engine = await startEngine({
    name: "redis",
    program: redisBinary(),
    ...(maxPort !== undefined && { maxPort }),
    ...(port !== undefined && { port }),
    prepare(folder) {
      if (configuration !== undefined) writeFileSync(file(folder), configuration);
    },
    args(folder, port) {
      const common = ["--port", `${port}`, "--bind", "127.0.0.1", "--dir", folder];
      const save = configuration === undefined ? ["--save", ""] : [];
      return [...(configuration === undefined ? [] : [file(folder)]), ...common, ...save, ...settings];
    },
    async isReady({ port, pid }) {
      const info = await ask(port, "INFO");
      return info.includes(`process_id:${pid}\r`) && !info.includes("loading:1");
    },
  });
  return Object.assign(engine, {
    command: (...words: readonly (string | number)[]) => command(engine.port, words),
  });
}

/** The major version of Redis that a server is, or says that it is like: that of Valkey is 7. */
export async function majorVersion(server: RedisServer): Promise<number> {
  return Number(/^redis_version:(\d+)/m.exec(String(await server.command("INFO", "server")))?.[1]);
}

/** Whether tests against Redis can run here. */
export function canRunRedis(): boolean {
  return canRun("Redis", redisBinary);
}

function redisBinary(): string {
  const name = process.env["REDIS_SERVER"] ?? "redis-server";
  return findProgram({ name, packages: name === "redis-server" ? [name] : [] });
}

async function command(port: number, words: readonly (string | number)[]): Promise<unknown> {
  const client = new Redis(port, "127.0.0.1", {
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
