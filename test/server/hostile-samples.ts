/** What no client of HTTP would send, to choose from. */
import { gzipSync } from "node:zlib";
import type { Random } from "../simulation/random.ts";
import { dataFrame, enveloped, frame, frameTypes, headersFrame, PREFACE, settingsFrame } from "./raw-http.ts";

export const hosts = [
  "",
  "[",
  "a b",
  "x:99999999",
  "x:",
  "[::1",
  "[zz]",
  "a/b",
  "a@b",
  "a:1:2",
  "%",
  "attacker.example",
];
export const verbs = [
  "GET",
  "HEAD",
  "OPTIONS",
  "PUT",
  "DELETE",
  "TRACE",
  "CONNECT",
  "PATCH",
  "PRI",
  "post",
  "G ET",
  "",
];
export const types = [
  "application/json",
  "application/connect+json",
  "application/grpc",
  "application/grpc+proto",
  "application/grpc-web",
  "application/proto",
  "text/html; charset=\u00ff",
  "*/*",
  "",
];
export const paths = [
  "/holdfast.v1.Locks/Status",
  "/holdfast.v1.Locks/Acquire",
  "/holdfast.v1.Locks/Watch",
  "/holdfast.v1.Session/Open",
  "/grpc.health.v1.Health/Check",
  "/healthz",
  "/metrics",
  "/",
  "*",
  "",
  "//",
  "http://[/x",
  "/%00?%",
  `/${"x".repeat(20_000)}`,
];
export const odd: readonly Readonly<Record<string, string>>[] = [
  { "content-encoding": "gzip" },
  { "content-encoding": "br" },
  { "content-encoding": "nonsense" },
  { "accept-encoding": "gzip;q=nonsense" },
  { "transfer-encoding": "gzip" },
  { "transfer-encoding": "chunked, chunked" },
  { expect: "100-continue" },
  { expect: "nonsense" },
  { connection: "upgrade", upgrade: "h2c" },
  { connection: "upgrade", upgrade: "websocket" },
  { "grpc-timeout": "99999999H" },
  { "connect-timeout-ms": "-1" },
  { "connect-protocol-version": "7" },
  { origin: "null" },
  { authorization: "Bearer" },
  { cookie: "x".repeat(15_000) },
];
export const bomb = gzipSync(Buffer.alloc(4_000_000));

/** A wait for a lock, or a lease. The server's bounds make both short. */
export function acquire(random: Random, releaseOnDisconnect: boolean): object {
  return { key: `raw-${random.integer(1, 20)}`, ttlMs: 1_000, maxWaitMs: 200, releaseOnDisconnect };
}

export function h2(method: string, path: string, type: string, more: Readonly<Record<string, string>> = {}) {
  const target = { ":method": method, ":scheme": "http", ":path": path, ":authority": "localhost" };
  return { ...target, "content-type": type, ...more };
}

const acquireHead = h2("POST", "/holdfast.v1.Locks/Acquire", "application/connect+json");

/** The bytes of a stream of `Acquire` over HTTP/2. */
export function acquireFrames(random: Random, stream: number): Buffer {
  const body = enveloped(JSON.stringify(acquire(random, random.chance(0.5))));
  return Buffer.concat([headersFrame(stream, acquireHead), dataFrame(stream, body)]);
}

export const hello = (settings = {}) =>
  Buffer.concat([PREFACE, settingsFrame(settings), frame(frameTypes.settings, 1, 0)]);

export function many(count: number, make: (index: number) => Buffer): Buffer {
  return Buffer.concat(Array.from({ length: count }, (_, index) => make(index)));
}

function number(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
}

export function randomBytes(random: Random, most: number): Buffer {
  return Buffer.from(Array.from({ length: random.integer(0, most) }, () => random.integer(0, 255)));
}

/** Each is wrong in its own way. */
export const badFrames: readonly ((random: Random) => Buffer)[] = [
  () => frame(frameTypes.data, 0, 0, Buffer.from("x")),
  () => dataFrame(7, Buffer.from("x")),
  () => headersFrame(2, h2("GET", "/healthz", "")),
  () => frame(frameTypes.continuation, 4, 1, Buffer.alloc(9)),
  () => frame(frameTypes.push, 4, 1, Buffer.alloc(9)),
  () => frame(frameTypes.goaway, 0, 0, Buffer.alloc(8)),
  () => frame(frameTypes.ping, 0, 0, Buffer.alloc(7)),
  () => frame(frameTypes.settings, 0, 0, Buffer.alloc(5)),
  () => frame(frameTypes.settings, 1, 0, Buffer.alloc(6)),
  () => frame(frameTypes.priority, 0, 1, Buffer.from([0, 0, 0, 1, 0])),
  () => frame(frameTypes.headers, 0x2d, 1, Buffer.from([255, 0, 0])),
  () => frame(frameTypes.headers, 4, 1, Buffer.alloc(17_000)),
  (random) =>
    frame(random.integer(0, 12), random.integer(0, 255), random.integer(0, 5), randomBytes(random, 60)),
  // The head of a long block of headers, and no end of it.
  (random) =>
    Buffer.concat([frame(frameTypes.headers, 0, 1, randomBytes(random, 40)), many(30, () => frame(9, 0, 1))]),
];

export const windowTricks: readonly ((random: Random) => Buffer)[] = [
  () => frame(frameTypes.window, 0, 0, number(0)),
  () => many(2, () => frame(frameTypes.window, 0, 0, number(0x7fff_ffff))),
  () => frame(frameTypes.window, 0, 1, number(0x7fff_ffff)),
  () => settingsFrame({ 4: 0x8000_0000 }),
  () => settingsFrame({ 1: 0xffff_ffff, 3: 0, 5: 1, 6: 0 }),
  (random) =>
    Buffer.concat([settingsFrame({ 4: 0 }), acquireFrames(random, 1), settingsFrame({ 4: 0x7fff_ffff })]),
  (random) => Buffer.concat([settingsFrame({ 4: 0 }), many(5, (nth) => acquireFrames(random, 2 * nth + 1))]),
  () =>
    Buffer.concat([
      settingsFrame({ 4: 0 }),
      many(20, (nth) => headersFrame(2 * nth + 1, h2("GET", "/healthz", ""), true)),
    ]),
];
