/** Attacks on the memory of a server that has little. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { type ClientHttp2Stream, connect } from "node:http2";
import type { Socket } from "node:net";
import { remoteStore } from "holdfast/remote";
import { afterEach, beforeEach, expect, test } from "vitest";
import { RequestWriter } from "../../src/protocol/index.ts";
import { forkProgram } from "../programs.ts";
import { claimRequest } from "../record/claim-request.ts";
import { dataFrame, dial, frame, headersFrame, PREFACE, settingsFrame } from "./raw-http.ts";

let child: ChildProcess;
let url: string;
const toEnd: (() => unknown)[] = [];

beforeEach(async () => {
  child = forkProgram(new URL("server-process.ts", import.meta.url), [], {
    execArgv: ["--max-old-space-size=256", "--expose-gc"],
  });
  const [started] = (await once(child, "message")) as [{ url: string }];
  url = started.url;
});

afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end();
  child.kill("SIGKILL");
});

/** A session by hand. */
function openSession(): { readonly stream: ClientHttp2Stream; readonly writer: RequestWriter } {
  const connection = connect(url);
  connection.on("error", () => {});
  toEnd.push(() => connection.destroy());
  const stream = connection.request({
    ":method": "POST",
    ":path": "/holdfast.v1.Session/Open",
    "content-type": "application/grpc+proto",
  });
  stream.on("error", () => {}).resume();
  const writer = new RequestWriter();
  writer.hello(1, "by hand");
  return { stream, writer };
}

/** A connection of HTTP/2 by hand, of a client that reads nothing if its window is 0. */
async function dial2(window = 65_535): Promise<Socket> {
  const socket = await dial(Number(new URL(url).port));
  toEnd.push(() => socket.destroy());
  socket.resume().write(Buffer.concat([PREFACE, settingsFrame({ 4: window })]));
  return socket;
}

function head(method: string, path: string, type: string, more: Record<string, string> = {}) {
  const target = { ":method": method, ":scheme": "http", ":path": path, ":authority": "localhost" };
  return { ...target, "content-type": type, ...more };
}

async function send(socket: Socket, bytes: Buffer, times = 1): Promise<void> {
  for (let sent = 0; sent < times && !socket.destroyed; sent++) {
    // The server cuts the connection off, which may come as an error.
    if (!socket.write(bytes))
      await Promise.race([once(socket, "drain"), once(socket, "close")]).catch(() => {});
  }
}

const repeated = (bytes: Buffer, times: number) => Buffer.concat(Array.from({ length: times }, () => bytes));

async function memoryMb(): Promise<number> {
  expect(child.exitCode ?? child.signalCode).toBeNull();
  child.send("memory");
  const [{ heapUsed, external }] = (await once(child, "message")) as [{ heapUsed: number; external: number }];
  return (heapUsed + external) / 1_048_576;
}

/** As long as the attack lasts, what is attacked keeps no more than its bounds. */
async function expectBounded(): Promise<void> {
  expect(await memoryMb()).toBeLessThan(200);
  await expectItGoesOn();
}

async function expectItGoesOn(): Promise<void> {
  const store = remoteStore(url);
  toEnd.push(() => store.close());
  const claim = claimRequest("honest", { key: "honest", ttlMs: 60_000 });
  // The server may have to read the rest of the attack first.
  const attempt = () => store.acquire(claim).then(({ state }) => state, String);
  await expect.poll(attempt, { timeout: 20_000 }).toBe("held");
  expect(child.exitCode).toBeNull();
}

test("owners that a session listens for have short names", async () => {
  for (let sessions = 0; sessions < 3; sessions++) {
    const { stream, writer } = openSession();
    const over = once(stream, "close");
    let trailers: Record<string, unknown> = {};
    stream.on("trailers", (headers) => {
      trailers = headers;
    });
    for (let n = 0; n < 300 && !stream.destroyed; n++) {
      writer.listen(`${n}${"x".repeat(1_000_000)}`);
      if (!stream.write(writer.take())) await Promise.race([once(stream, "drain").catch(() => {}), over]);
    }
    await over;
    expect(trailers["grpc-status"]).toBe("3");
  }
  await expectItGoesOn();
});

const STATUS = head("POST", "/holdfast.v1.Locks/Status", "application/json");
const OPEN = head("POST", "/holdfast.v1.Session/Open", "application/grpc+proto");
const ONE_BYTE = dataFrame(1, Buffer.from("x"), false);

test("a body in chunks of one byte takes no more than its bytes", async () => {
  for (let connection = 0; connection < 3; connection++) {
    const socket = await dial(Number(new URL(url).port));
    toEnd.push(() => socket.destroy());
    socket.resume().write("POST /holdfast.v1.Locks/Status HTTP/1.1\r\nhost: localhost\r\n");
    socket.write("content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
    await send(socket, repeated(Buffer.from("1\r\nx\r\n"), 10_000), 60);
  }
  await expectBounded();
});

// A GET has no body that anybody reads, and its answer is not read either.
test.each([
  ["a call", STATUS, Buffer.alloc(0)],
  ["a page", head("GET", "/metrics", "text/plain"), Buffer.alloc(0)],
  ["a session's message", OPEN, dataFrame(1, Buffer.from([0, 0, 15, 0, 0]), false)],
])("frames of one byte on %s take no more than their bytes", async (_, headers, first) => {
  for (let connection = 0; connection < 3; connection++) {
    const socket = await dial2(0);
    socket.write(Buffer.concat([headersFrame(1, headers), first]));
    await send(socket, repeated(ONE_BYTE, 10_000), 60);
  }
  await expectBounded();
});

test("a byte of a body keeps nothing of what came along with it", async () => {
  const socket = await dial2();
  socket.write(headersFrame(1, STATUS));
  // Frames of an unknown type are ignored.
  const noise = repeated(frame(0xaa, 0, 0, Buffer.alloc(16_000)), 4);
  await send(socket, Buffer.concat([ONE_BYTE, noise]), 5_000);
  await expectBounded();
});

test.each([
  ["a body that never comes", STATUS],
  ["CONNECT", { ":method": "CONNECT", ":authority": "localhost" }],
  ["an expectation", head("GET", "/metrics", "text/plain", { expect: "nonsense" })],
])("requests with long headers and %s are cut off when there are too many", async (_, headers) => {
  for (let connection = 0; connection < 8; connection++) {
    const socket = await dial2(0);
    for (let stream = 1; stream < 2_000; stream += 2) {
      await send(socket, headersFrame(stream, { ...headers, x: "y".repeat(15_000) }));
    }
  }
  await expectBounded();
});

test("messages of sessions that are never whole are bounded together", async () => {
  const part = Buffer.alloc(1_000_000);
  part.writeUInt32BE(1_048_000, 1);
  for (let sessions = 0; sessions < 200; sessions++) {
    const { stream, writer } = openSession();
    stream.write(Buffer.concat([writer.take(), part]));
    if (sessions % 10 === 9) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await expectBounded();
});

test("a session that reads nothing keeps neither long looks nor frames of one byte", async () => {
  for (let connection = 0; connection < 4; connection++) {
    const socket = await dial2(0);
    const writer = new RequestWriter();
    writer.hello(1, "by hand");
    await send(socket, Buffer.concat([headersFrame(1, OPEN), dataFrame(1, writer.take(), false)]));
    for (let number = 1; number <= 10_500; number++) {
      writer.look(number, { prefix: "x".repeat(500), limit: 1, maxClaims: 0 });
      if (number % 25 === 0) await send(socket, dataFrame(1, writer.take(), false));
    }
    await send(socket, repeated(ONE_BYTE, 10_000), 60);
  }
  await expectBounded();
  const { stream, writer } = openSession();
  const over = once(stream, "close");
  writer.look(1, { prefix: "x".repeat(1_000_000), limit: 1, maxClaims: 0 });
  stream.write(writer.take());
  await over;
});
