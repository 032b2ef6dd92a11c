/** Attacks by bytes on a socket that no client of HTTP would send: on HTTP/1.1, on HTTP/2, and by the moment of a connection's end. */
import { once } from "node:events";
import type { Socket } from "node:net";
import type { Random } from "../simulation/random.ts";
import {
  acquire,
  acquireFrames,
  badFrames,
  bomb,
  h2,
  hello,
  hosts,
  many,
  odd,
  paths,
  randomBytes,
  types,
  verbs,
  windowTricks,
} from "./hostile-samples.ts";
import {
  dataFrame,
  dial,
  enveloped,
  frame,
  frameTypes,
  headersFrame,
  http1,
  jsonCall,
  jsonStreamCall,
  resetFrame,
  settingsFrame,
} from "./raw-http.ts";

export interface RawTarget {
  readonly server: { readonly port: number };
  readonly random: Random;
}

export interface RawKind {
  readonly name: string;
  run(target: RawTarget): Promise<string>;
}

/** What comes of it: the status of HTTP/1.1, or how the connection ends. It ends after the first answer, or soon. */
async function send({ server }: RawTarget, bytes: Buffer, patienceMs = 200): Promise<string> {
  const socket = await dial(server.port);
  let answer = "raw: silent";
  const timer = setTimeout(() => socket.destroy(), patienceMs);
  socket.once("data", (piece: Buffer) => {
    const status = /^HTTP\/1\.1 (\d+)/.exec(piece.toString("latin1"))?.[1];
    answer = status === undefined ? "raw: frames" : `raw: http ${status}`;
    socket.destroy();
  });
  socket.write(bytes);
  await once(socket, "close");
  clearTimeout(timer);
  return answer;
}

function end(socket: Socket, random: Random): string {
  const how = random.pick(["reset", "closed", "ended"]);
  if (how === "reset") socket.resetAndDestroy();
  else if (how === "closed") socket.destroy();
  else socket.end(() => socket.destroy());
  return `raw: ${how}`;
}

/** Where the next request is cut: each byte has its turn. */
let cut = 0;

async function sendCut({ server, random }: RawTarget, bytes: Buffer): Promise<string> {
  const socket = await dial(server.port);
  socket.write(bytes.subarray(0, cut++ % (bytes.length + 1)));
  for (let turns = random.integer(0, 5); turns > 0; turns--) await new Promise(setImmediate);
  return end(socket, random);
}

/** The connection ends with the grant, or some turns before or after it. */
async function sendAndDie({ server, random }: RawTarget, bytes: Buffer): Promise<string> {
  const socket = await dial(server.port);
  socket.write(bytes);
  if (random.chance(0.5)) await Promise.race([once(socket, "data"), once(socket, "close")]);
  for (let turns = random.integer(0, 8); turns > 0; turns--) await new Promise(setImmediate);
  return end(socket, random);
}

export const rawKinds: readonly RawKind[] = [
  {
    name: "HTTP/1.1: hosts",
    run: (to) => {
      const host = to.random.pick([undefined, ...hosts]);
      const headers = { ...(host !== undefined && { host }), "content-type": to.random.pick(types) };
      const request = http1("POST", to.random.pick(paths), headers, "{}");
      return send(
        to,
        to.random.chance(0.8) ? request : Buffer.from(request.toString().replace("HTTP/1.1", "HTTP/1.0")),
      );
    },
  },
  {
    name: "HTTP/1.1: methods and paths",
    run: (to) => send(to, http1(to.random.pick(verbs), to.random.pick(paths), { host: "localhost" })),
  },
  {
    name: "HTTP/1.1: types, encodings and other headers",
    run: (to) => {
      const body = to.random.pick([bomb, bomb.subarray(0), Buffer.from("{}"), enveloped(bomb)]);
      const headers = { host: "localhost", "content-type": to.random.pick(types), ...to.random.pick(odd) };
      return send(to, http1("POST", to.random.pick(paths), headers, body));
    },
  },
  {
    name: "HTTP/1.1: lengths that lie",
    run: (to) => {
      const length = to.random.pick([
        "0",
        "1",
        "3",
        "99",
        "-1",
        "1e3",
        "0x2",
        "99999999999999999999",
        "2, 2",
        "2\r\ncontent-length: 3",
      ]);
      return send(to, jsonCall("Status", "{}", { "content-length": length }));
    },
  },
  {
    name: "HTTP/1.1: chunks of garbage",
    run: (to) => {
      const size = to.random.pick([
        "2",
        "ffffffffffffffff",
        "-1",
        "1;x=y",
        "",
        "0x2",
        "0",
        `2;${"x".repeat(17_000)}`,
      ]);
      const head = http1("POST", "/holdfast.v1.Locks/Status", {
        host: "localhost",
        "content-type": "application/json",
        "transfer-encoding": "chunked",
      });
      return send(to, Buffer.concat([head, Buffer.from(`${size}\r\n{}\r\n`), randomBytes(to.random, 40)]));
    },
  },
  {
    name: "HTTP/1.1: cut at every byte",
    run: (to) => sendCut(to, jsonStreamCall("Acquire", acquire(to.random, true))),
  },
  {
    name: "HTTP/1.1: ends in the turn of a grant, to be released",
    run: (to) => sendAndDie(to, jsonStreamCall("Acquire", acquire(to.random, true))),
  },
  {
    name: "HTTP/1.1: ends in the turn of a grant, left to its ttl",
    run: (to) => sendAndDie(to, jsonStreamCall("Acquire", acquire(to.random, false))),
  },
  {
    name: "HTTP/1.1: pipelined, and never read",
    run: (to) =>
      send(
        to,
        many(5, () => jsonStreamCall("Acquire", acquire(to.random, to.random.chance(0.5)))),
      ),
  },
  {
    name: "HTTP/2: authorities, methods and headers",
    run: (to) => {
      const head = h2(to.random.pick(verbs), to.random.pick(paths), to.random.pick(types), {
        ":authority": to.random.pick(hosts),
        ...to.random.pick([
          {},
          { connection: "close" },
          { UPPER: "x" },
          { te: "gzip" },
          { ":path": "/again" },
          ...odd,
        ]),
      });
      return send(to, Buffer.concat([hello(), headersFrame(1, head), dataFrame(1, enveloped("{}"))]));
    },
  },
  {
    name: "HTTP/2: settings flood",
    run: (to) => send(to, Buffer.concat([hello(), many(1_200, () => settingsFrame({ 3: 1 }))])),
  },
  {
    name: "HTTP/2: ping flood",
    run: (to) =>
      send(
        to,
        Buffer.concat([hello(), many(1_200, () => frame(frameTypes.ping, 0, 0, Buffer.alloc(8)))]),
        50,
      ),
  },
  {
    name: "HTTP/2: rapid resets",
    run: (to) =>
      send(
        to,
        Buffer.concat([
          hello(),
          many(20, (nth) => Buffer.concat([acquireFrames(to.random, 2 * nth + 1), resetFrame(2 * nth + 1)])),
        ]),
        50,
      ),
  },
  {
    name: "HTTP/2: bad frames",
    run: (to) =>
      send(to, Buffer.concat([hello(), to.random.pick(badFrames)(to.random), acquireFrames(to.random, 1)])),
  },
  {
    name: "HTTP/2: window tricks",
    run: (to) => send(to, Buffer.concat([hello(), to.random.pick(windowTricks)(to.random)])),
  },
  {
    name: "HTTP/2: cut at every byte",
    run: (to) => sendCut(to, Buffer.concat([hello(), acquireFrames(to.random, 1)])),
  },
  {
    name: "HTTP/2: ends in the turn of a grant",
    run: (to) => sendAndDie(to, Buffer.concat([hello(), acquireFrames(to.random, 1)])),
  },
  {
    name: "HTTP/2: reset in the turn of a grant",
    run: (to) =>
      sendAndDie(
        to,
        Buffer.concat([hello(), acquireFrames(to.random, 1), acquireFrames(to.random, 3), resetFrame(1)]),
      ),
  },
];
