/** Real Redis servers for tests, on free ports of this machine, in temporary folders. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface RedisServer {
  readonly port: number;
  readonly process: ChildProcess;
  /** Stops it and removes what it left. */
  stop(): Promise<void>;
}

/** Starts a server with these settings, on a free port unless told which, and waits until it answers. */
export async function startRedis(settings: readonly string[] = [], at?: number): Promise<RedisServer> {
  const binary = redisBinary();
  const port = at ?? (await freePort());
  const folder = mkdtempSync(join(tmpdir(), "holdfast-redis-"));
  const args = ["--port", `${port}`, "--bind", "127.0.0.1", "--dir", folder, "--save", "", ...settings];
  const server = spawn(binary, args, { stdio: "ignore" });
  const stop = async () => {
    if (server.exitCode === null && server.signalCode === null) {
      const ended = new Promise((resolve) => server.once("exit", resolve));
      server.kill("SIGKILL");
      await ended;
    }
    rmSync(folder, { recursive: true, force: true });
  };
  await answers(port);
  return { port, process: server, stop };
}

function redisBinary(): string {
  if (isInstalled()) return "redis-server";
  if (process.getuid?.() === 0) {
    execFileSync("apt-get", ["update", "-qq"], { stdio: "ignore" });
    execFileSync("apt-get", ["install", "-y", "-qq", "redis-server"], { stdio: "ignore" });
    if (isInstalled()) return "redis-server";
  }
  throw new Error(
    "redis-server is not installed, and cannot be without being root: install Debian's redis-server.",
  );
}

function isInstalled(): boolean {
  try {
    execFileSync("redis-server", ["--version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

async function answers(port: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt++) {
    if (await pings(port)) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`No server answers on port ${port}.`);
}

function pings(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n"));
    socket.once("data", () => socket.destroy());
    socket.once("error", () => {});
    socket.once("close", () => resolve(socket.bytesRead > 0));
  });
}
