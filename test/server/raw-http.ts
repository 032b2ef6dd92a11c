/** Requests as bytes on a socket, for those that no HTTP client would send. */
import { once } from "node:events";
import { connect as connectHttp2, type OutgoingHttpHeaders } from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";

/** A connection whose errors are of no interest. */
export async function dial(port: number): Promise<Socket> {
  const socket = connectTcp({ port, host: "127.0.0.1", noDelay: true });
  socket.on("error", () => {});
  await once(socket, "connect");
  return socket;
}

/** The request line, the headers and the body of a request over HTTP/1.1. */
export function http1(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body: Buffer | string = "",
): Buffer {
  const bytes = Buffer.from(body);
  const all = bytes.length === 0 ? headers : { "content-length": `${bytes.length}`, ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  return Buffer.concat([Buffer.from([`${method} ${path} HTTP/1.1`, ...lines, "", ""].join("\r\n")), bytes]);
}

/** A call in JSON over HTTP/1.1. */
export function jsonCall(
  method: string,
  body: object | string,
  headers: Record<string, string> = {},
): Buffer {
  return http1(
    "POST",
    `/holdfast.v1.Locks/${method}`,
    { host: "localhost", "content-type": "application/json", ...headers },
    typeof body === "string" ? body : JSON.stringify(body),
  );
}

/** A call of a method with a stream of answers, in JSON over HTTP/1.1. */
export function jsonStreamCall(method: string, body: object | string): Buffer {
  return http1(
    "POST",
    `/holdfast.v1.Locks/${method}`,
    { host: "localhost", "content-type": "application/connect+json" },
    enveloped(typeof body === "string" ? body : JSON.stringify(body)),
  );
}

/** A message with its length before it, as gRPC and the streams of Connect have it. */
export function enveloped(message: Buffer | string): Buffer {
  const bytes = Buffer.from(message);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

/** Everything that a server says to these bytes, until it has answered once or closes the connection. */
export async function say(port: number, bytes: Buffer | string): Promise<string> {
  const socket = await dial(port);
  try {
    return await sayOn(socket, bytes);
  } finally {
    socket.destroy();
  }
}

export async function sayOn(socket: Socket, bytes: Buffer | string): Promise<string> {
  let answer = "";
  const whole = new Promise<void>((resolve) => {
    socket.on("data", (piece: Buffer) => {
      answer += piece.toString("latin1");
      if (isWhole(answer)) resolve();
    });
    socket.once("close", () => resolve());
  });
  socket.write(bytes);
  await whole;
  socket.removeAllListeners("data");
  return answer;
}

function isWhole(answer: string): boolean {
  const [head = "", body] = answer.split("\r\n\r\n", 2);
  if (body === undefined) return false;
  const length = /^content-length: (\d+)$/im.exec(head)?.[1];
  return length === undefined ? answer.endsWith("0\r\n\r\n") : body.length >= Number(length);
}

export interface Answer {
  readonly status: number;
  readonly headers: Record<string, unknown>;
  readonly body: string;
}

/** One request over HTTP/2, on a connection of its own. */
export async function say2(
  url: string,
  headers: OutgoingHttpHeaders,
  body: Buffer | string = "",
): Promise<Answer> {
  const connection = connectHttp2(url);
  connection.on("error", () => {});
  try {
    const stream = connection.request({ ":method": "POST", ...headers });
    let answered: Record<string, unknown> = {};
    stream.on("response", (head) => {
      answered = { ...head };
    });
    stream.on("trailers", (trailers) => {
      answered = { ...answered, ...trailers };
    });
    stream.on("error", () => {});
    const pieces: Buffer[] = [];
    stream.on("data", (piece: Buffer) => pieces.push(piece));
    stream.end(body);
    await new Promise((resolve) => stream.once("close", resolve));
    return {
      status: Number(answered[":status"] ?? 0),
      headers: answered,
      body: Buffer.concat(pieces).toString(),
    };
  } finally {
    connection.destroy();
  }
}

// HTTP/2 by hand.

export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

export const frameTypes = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  push: 5,
  ping: 6,
  goaway: 7,
  window: 8,
  continuation: 9,
} as const;

export function frame(
  type: number,
  flags: number,
  stream: number,
  payload: Buffer = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A frame of headers, each written out, without any table. */
export function headersFrame(
  stream: number,
  headers: Readonly<Record<string, string>>,
  isEnd = false,
): Buffer {
  const fields = Object.entries(headers).map(([name, value]) =>
    Buffer.concat([Buffer.from([0]), lengthOf(name), Buffer.from(name), lengthOf(value), Buffer.from(value)]),
  );
  return frame(frameTypes.headers, isEnd ? 5 : 4, stream, Buffer.concat(fields));
}

export function dataFrame(stream: number, bytes: Buffer, isEnd = true): Buffer {
  return frame(frameTypes.data, isEnd ? 1 : 0, stream, bytes);
}

export function resetFrame(stream: number, code = 8): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(code);
  return frame(frameTypes.reset, 0, stream, payload);
}

export function settingsFrame(settings: Readonly<Record<number, number>> = {}): Buffer {
  const payload = Object.entries(settings).map(([id, value]) => {
    const entry = Buffer.alloc(6);
    entry.writeUInt16BE(Number(id), 0);
    entry.writeUInt32BE(value, 2);
    return entry;
  });
  return frame(frameTypes.settings, 0, 0, Buffer.concat(payload));
}

/** The length of a string of HPACK. */
function lengthOf(text: string): Buffer {
  const length = Buffer.byteLength(text);
  if (length < 127) return Buffer.from([length]);
  const bytes = [127];
  let rest = length - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  return Buffer.from([...bytes, rest]);
}
