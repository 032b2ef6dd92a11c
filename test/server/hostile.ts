/**
 * Hostile and broken clients: malformed, truncated, oversized and random messages on every way into the server, silent
 * connections, and readers that do not read. The server is a process of its own, so that its crash and its memory are
 * its own. Meanwhile an honest client takes locks.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";
import { createLocks } from "holdfast";
import { remoteStore } from "holdfast/remote";
import type { ServerLimits } from "holdfast/server";
import { RequestWriter } from "../../src/protocol/index.ts";
import { forkProgram } from "../programs.ts";
import { claimRequest } from "../record/claim-request.ts";
import { Random } from "../simulation/random.ts";
import { http1, say } from "./raw-http.ts";
import type { ServerState } from "./server-process.ts";

export interface HostileReport {
  readonly attacks: Record<string, number>;
  /** The answers of the server, counted by status. */
  readonly answers: Record<string, number>;
  readonly casesPerSecond: number;
  /** The resources of the server before and after. */
  readonly before: KeptState;
  readonly after: KeptState;
  /** The most megabytes that it kept meanwhile. */
  readonly mostMb: number;
  /** Errors that no part of the server expects, and failures of its store. */
  readonly serverErrors: number;
  /** The cycles of the honest client, and its failures. */
  readonly honest: { readonly cycles: number; readonly failures: number };
}

/** The resources that must be the same before and after, and the memory in use after a collection. */
export interface KeptState extends Omit<ServerState, "rss" | "heapUsed" | "external"> {
  readonly rssMb: number;
  readonly heapMb: number;
  /** Gauges of the metrics. */
  readonly open: Readonly<Record<string, number>>;
}

/** How long what was taken may last when all is over. */
const SETTLE_MS = 15_000;

const LIMITS: ServerLimits = {
  maxMessageBytes: 65_536,
  silenceMs: 5_000,
  slowReaderMs: 1_000,
  maxBufferedBytes: 262_144,
  maxTtlMs: 5_000,
  maxWaitMs: 1_000,
};

const methods = [
  "Acquire",
  "AcquireDetached",
  "AcquireMany",
  "Release",
  "Extend",
  "Status",
  "List",
  "Watch",
  "ForceRelease",
];

/** Attacks under way at a time. */
const AT_ONCE = 50;

export async function attack(
  count: number,
  seed: number,
  progress: (text: string) => void,
): Promise<HostileReport> {
  const server = await ServerProcess.start(LIMITS);
  const random = new Random(seed);
  const attacks: Record<string, number> = {};
  const answers: Record<string, number> = {};
  const before = await server.state();
  let mostMb = before.heapMb;
  const honest = new HonestClient(server.url);
  const half = halfOpenConnections(server.port, Math.min(200, count));
  const slow = await slowReaders(server.url, 5);
  let connection = open(server.url);
  const startMs = performance.now();
  try {
    let begun = 0;
    const work = async () => {
      while (begun < count) {
        const nth = ++begun;
        const kind = random.pick(kinds);
        attacks[kind.name] = (attacks[kind.name] ?? 0) + 1;
        if (connection.destroyed || connection.closed) connection = open(server.url);
        const answer = await kind.run({ server, connection, random });
        answers[answer] = (answers[answer] ?? 0) + 1;
        if (nth % 5_000 !== 0) continue;
        mostMb = Math.max(mostMb, (await server.state()).heapMb);
        progress(`${nth} of ${count}, ${mostMb} MB at most`);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const casesPerSecond = Math.round((1_000 * count) / (performance.now() - startMs));
    mostMb = Math.max(mostMb, (await server.state()).heapMb);
    const outcome = await honest.end();
    for (const socket of half) socket.destroy();
    for (const session of slow) session.destroy();
    connection.destroy();
    const after = await settled(server, before);
    const serverErrors = await server.errors();
    return { attacks, answers, casesPerSecond, before, after, mostMb, serverErrors, honest: outcome };
  } finally {
    await server.stop();
  }
}

/** Waits until the resources are as before, for at most `SETTLE_MS`. */
async function settled(server: ServerProcess, before: KeptState): Promise<KeptState> {
  const untilMs = performance.now() + SETTLE_MS;
  for (;;) {
    const after = await server.state();
    if (isSame(before, after) || performance.now() > untilMs) return after;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** Whether the same is open. Memory never is exactly the same. */
export function isSame(a: KeptState, b: KeptState): boolean {
  const counts = ({ handles, timers, keys, open }: KeptState) =>
    JSON.stringify([Object.entries(handles).sort(), timers, keys, open]);
  return counts(a) === counts(b);
}

interface Target {
  readonly server: ServerProcess;
  readonly connection: ClientHttp2Session;
  readonly random: Random;
}

interface Kind {
  readonly name: string;
  run(target: Target): Promise<string>;
}

const kinds: readonly Kind[] = [
  {
    name: "session: random frames",
    run: (to) => session(to, [helloFrame(), framed(randomBytes(to.random, 200))]),
  },
  { name: "session: no hello", run: (to) => session(to, [operationsFrame(to.random)]) },
  {
    name: "session: truncated frame",
    run: (to) => session(to, [helloFrame(), truncated(to.random, operationsFrame(to.random))]),
  },
  {
    name: "session: mutated frame",
    run: (to) => session(to, [helloFrame(), mutated(to.random, operationsFrame(to.random))]),
  },
  {
    name: "session: oversized frame",
    run: (to) => session(to, [helloFrame(), Buffer.from([0, 0x7f, 0xff, 0xff, 0xff])]),
  },
  {
    name: "session: frame longer than allowed",
    run: (to) => session(to, [helloFrame(), framed(Buffer.alloc(70_000))]),
  },
  {
    name: "session: compressed frame",
    run: (to) => session(to, [helloFrame(), Buffer.from([1, 0, 0, 0, 0])]),
  },
  { name: "session: another version", run: (to) => session(to, [helloFrame(99)]) },
  { name: "session: bad values", run: (to) => session(to, [helloFrame(), badValuesFrame(to.random)]) },
  { name: "JSON: random", run: (to) => json(to, randomBytes(to.random, 300)) },
  { name: "JSON: mutated", run: (to) => json(to, mutated(to.random, jsonBody(to.random))) },
  { name: "JSON: truncated", run: (to) => json(to, truncated(to.random, jsonBody(to.random))) },
  { name: "JSON: wrong types", run: (to) => json(to, Buffer.from(wrongTypes(to.random))) },
  {
    name: "JSON: deeply nested",
    run: (to) => json(to, Buffer.from(`${"[".repeat(20_000)}${"]".repeat(20_000)}`)),
  },
  { name: "JSON: too long", run: (to) => json(to, Buffer.from(JSON.stringify({ key: "x".repeat(70_000) }))) },
  { name: "gRPC: random", run: (to) => grpc(to, framed(randomBytes(to.random, 200))) },
  {
    name: "gRPC: truncated",
    run: (to) => grpc(to, truncated(to.random, framed(randomBytes(to.random, 200)))),
  },
  { name: "gRPC: oversized", run: (to) => grpc(to, Buffer.from([0, 0xff, 0xff, 0xff, 0xff])) },
  { name: "TCP: random bytes", run: (to) => tcp(to, randomBytes(to.random, 300)) },
  {
    name: "TCP: preface and garbage",
    run: (to) => tcp(to, Buffer.concat([PREFACE, randomBytes(to.random, 100)])),
  },
  { name: "TCP: part of the preface", run: (to) => tcp(to, PREFACE.subarray(0, to.random.integer(1, 20))) },
];

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

// Ways in.

function session({ connection }: Target, frames: readonly Buffer[]): Promise<string> {
  return request(connection, "/holdfast.v1.Session/Open", "application/grpc+proto", frames);
}

function json(to: Target, body: Buffer): Promise<string> {
  return request(to.connection, `/holdfast.v1.Locks/${to.random.pick(methods)}`, "application/json", [body]);
}

function grpc(to: Target, body: Buffer): Promise<string> {
  return request(to.connection, `/holdfast.v1.Locks/${to.random.pick(methods)}`, "application/grpc+proto", [
    body,
  ]);
}

/** The outcome of a request: a gRPC status, an HTTP status, a reset, or "taken" after a timeout. */
function request(
  connection: ClientHttp2Session,
  path: string,
  type: string,
  parts: readonly Buffer[],
): Promise<string> {
  return new Promise((resolve) => {
    if (connection.destroyed || connection.closed) {
      resolve("connection closed");
      return;
    }
    const stream = connection.request({
      ":method": "POST",
      ":path": path,
      "content-type": type,
      te: "trailers",
    });
    let answer = "none";
    const note = (headers: Record<string, unknown>) => {
      const status = headers["grpc-status"];
      if (status !== undefined) answer = `grpc ${status}`;
      else if (headers[":status"] !== 200 && headers[":status"] !== undefined)
        answer = `http ${headers[":status"]}`;
    };
    stream.on("response", note).on("trailers", note);
    stream.on("error", () => {
      answer = "reset";
    });
    stream.on("close", () => resolve(answer));
    stream.resume();
    // A request that is accepted may wait for long.
    stream.setTimeout(2_000, () => {
      answer = "taken";
      stream.close(8);
    });
    for (const part of parts) stream.write(part);
    stream.end();
  });
}

async function tcp({ server }: Target, bytes: Buffer): Promise<string> {
  const socket = connectTcp(server.port, "127.0.0.1");
  socket.on("error", () => {});
  socket.setTimeout(20, () => socket.destroy());
  socket.on("data", () => {});
  socket.write(bytes);
  await once(socket, "close").catch(() => {});
  return "tcp closed";
}

// Messages.

function framed(message: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

function helloFrame(version = 1): Buffer {
  const writer = new RequestWriter();
  writer.hello(version, "hostile");
  return writer.take();
}

function operationsFrame(random: Random): Buffer {
  const writer = new RequestWriter();
  for (let number = 1; number <= 5; number++) {
    const key = `attacked-${random.integer(1, 5)}`;
    writer.acquire(number, claimRequest(`id-${random.integer(1, 9)}`, { key, wait: random.chance(0.5) }));
    writer.release(number + 10, [{ key, id: "i", token: "t" }]);
  }
  return writer.take();
}

function badValuesFrame(random: Random): Buffer {
  const writer = new RequestWriter();
  writer.acquire(1, claimRequest("i", { key: random.pick(["", "x".repeat(600), "a\u0000b"]), ttlMs: 0 }));
  writer.acquire(2, claimRequest("", { key: "k", weight: 0, limit: 0 }));
  writer.look(3, { prefix: "", limit: 0xffff_ffff, maxClaims: 0xffff_ffff });
  writer.look(4, { prefix: "", cursor: "☃", limit: 1, maxClaims: 1 });
  return writer.take();
}

function jsonBody(random: Random): Buffer {
  return Buffer.from(
    JSON.stringify({
      key: `attacked-${random.integer(1, 5)}`,
      maxWaitMs: 0,
      ttlMs: 100,
      id: "i",
      token: "t",
    }),
  );
}

function wrongTypes(random: Random): string {
  const value = random.pick(["{}", "[]", "-1", "1e400", "null", '"x"', "true", "99999999999999999999"]);
  const field = random.pick([
    "key",
    "ttlMs",
    "maxWaitMs",
    "keys",
    "terms",
    "mode",
    "prefix",
    "pageSize",
    "fence",
  ]);
  return random.pick([`{"${field}":${value}}`, value]);
}

function randomBytes(random: Random, most: number): Buffer {
  return Buffer.from(Array.from({ length: random.integer(0, most) }, () => random.integer(0, 255)));
}

function truncated(random: Random, bytes: Buffer): Buffer {
  return bytes.subarray(0, random.integer(0, Math.max(0, bytes.length - 1)));
}

function mutated(random: Random, bytes: Buffer): Buffer {
  const copy = Buffer.from(bytes);
  for (let flips = random.integer(1, 5); flips > 0; flips--)
    copy[random.integer(0, copy.length - 1)] = random.integer(0, 255);
  return copy;
}

// Silent clients.

/** Connections that say nothing, or half a sentence. */
function halfOpenConnections(port: number, count: number): Socket[] {
  return Array.from({ length: count }, (_, index) => {
    const socket = connectTcp({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.on("error", () => {});
    if (index % 3 === 1) socket.write("PRI * HT");
    if (index % 3 === 2) socket.write("POST /holdfast.v1.Locks/Status HTTP/1.1\r\ncontent-le");
    return socket;
  });
}

/** Sessions that ask for much, again and again, and never read an answer. */
async function slowReaders(url: string, count: number): Promise<ClientHttp2Session[]> {
  const sessions: ClientHttp2Session[] = [];
  for (let index = 0; index < count; index++) {
    const connection = connectHttp2(url, { settings: { initialWindowSize: 0 } });
    connection.on("error", () => {});
    const stream = connection.request({
      ":method": "POST",
      ":path": "/holdfast.v1.Session/Open",
      "content-type": "application/grpc+proto",
    });
    stream.on("error", () => {});
    stream.pause();
    stream.write(helloFrame());
    const timer = setInterval(() => {
      if (stream.destroyed) clearInterval(timer);
      else if (!stream.writableNeedDrain) for (let n = 0; n < 50; n++) stream.write(manyReleases());
    }, 5);
    connection.once("close", () => clearInterval(timer));
    sessions.push(connection);
  }
  return sessions;
}

function manyReleases(): Buffer {
  const writer = new RequestWriter();
  for (let number = 1; number <= 100; number++) writer.release(number, [{ key: "k", id: "i", token: "t" }]);
  return writer.take();
}

/** Takes and gives back locks all the time, on a connection of its own. */
class HonestClient {
  readonly #locks;
  readonly #working: Promise<void>;
  #over = false;
  #cycles = 0;
  #failures = 0;

  constructor(url: string) {
    this.#locks = createLocks(remoteStore(url));
    this.#working = this.#work();
  }

  async #work(): Promise<void> {
    while (!this.#over) {
      try {
        await this.#locks.mutex(`honest-${this.#cycles % 10}`, { ttlMs: 5_000 }).run(() => {});
        this.#cycles++;
      } catch {
        this.#failures++;
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  async end(): Promise<{ cycles: number; failures: number }> {
    this.#over = true;
    await this.#working;
    // A request that was failed and repeated counts as well.
    const failures = this.#failures + this.#locks.stats().failures;
    await this.#locks.close();
    return { cycles: this.#cycles, failures };
  }
}

function open(url: string): ClientHttp2Session {
  const connection = connectHttp2(url);
  connection.on("error", () => {});
  return connection;
}

export class ServerProcess {
  readonly #child: ChildProcess;
  readonly url: string;
  readonly port: number;

  private constructor(child: ChildProcess, url: string, port: number) {
    this.#child = child;
    this.url = url;
    this.port = port;
  }

  static async start(limits: ServerLimits): Promise<ServerProcess> {
    const file = new URL("server-process.ts", import.meta.url);
    const child = forkProgram(file, [JSON.stringify(limits)], { execArgv: ["--expose-gc"] });
    const [{ url, port }] = (await once(child, "message")) as [{ url: string; port: number }];
    return new ServerProcess(child, url, port);
  }

  /** Whether it still runs. */
  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Fails when the process has ended. */
  async state(): Promise<KeptState> {
    if (!this.isAlive) throw new Error("The server has crashed.");
    this.#child.send("memory");
    const [state] = (await once(this.#child, "message")) as [ServerState];
    const { rss, heapUsed, external, handles, timers, keys } = state;
    const gauges = (await this.#metrics()).matchAll(
      /^holdfast_(sessions|streams|connections|held_claims|waiting_claims) (\d+)/gm,
    );
    const open = Object.fromEntries([...gauges].map(([, name, value]) => [name, Number(value)]));
    const megabytes = (bytes: number) => Math.round(bytes / 1_048_576);
    return { rssMb: megabytes(rss), heapMb: megabytes(heapUsed + external), handles, timers, keys, open };
  }

  async errors(): Promise<number> {
    const found = (await this.#metrics()).matchAll(
      /^holdfast_errors_total\{code="(?:UNEXPECTED|STORE_FAILURE)"\} (\d+)/gm,
    );
    return [...found].reduce((sum, [, value]) => sum + Number(value), 0);
  }

  async #metrics(): Promise<string> {
    return await say(this.port, http1("GET", "/metrics", { host: "localhost" }));
  }

  async stop(): Promise<void> {
    if (!this.isAlive) return;
    const exited = once(this.#child, "exit");
    this.#child.send("stop");
    await exited;
  }
}
