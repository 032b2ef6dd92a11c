/** Callers that take all they can get: thousands that wait for one key, and hundreds that watch thousands of keys which change. */
import { type ClientHttp2Session, connect } from "node:http2";
import { createLocks, type Lease, type Locks } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { offer } from "../child.ts";

export interface Crowd {
  readonly url: string;
  readonly waiters: number;
  readonly watchers: number;
  readonly keys: number;
}

/** Calls on one connection: fewer than `maxStreams`. */
const CALLS_PER_CONNECTION = 500;

/** How often the key that is waited for is handed on, and how many keys change every 100 ms. */
const HANDOVER_MS = 500;
const CHANGES = 10;

const HOT_KEY = "crowd/hot";
const PREFIX = "crowd/watched/";

const connections: { readonly session: ClientHttp2Session; calls: number }[] = [];
let events = 0;
let failures = 0;

/** A call that streams, in Connect's JSON, since gRPC without a library is no shorter. */
function call(url: string, method: string, request: object, onData: (text: string) => void) {
  let connection = connections.at(-1);
  if (connection === undefined || connection.calls >= CALLS_PER_CONNECTION) {
    connection = { session: connect(url), calls: 0 };
    connection.session.on("error", () => failures++);
    connections.push(connection);
  }
  connection.calls++;
  const stream = connection.session.request({
    ":method": "POST",
    ":path": `/holdfast.v1.Locks/${method}`,
    "content-type": "application/connect+json",
  });
  const body = Buffer.from(JSON.stringify(request));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  stream.end(Buffer.concat([head, body]));
  stream.on("data", (data: Buffer) => {
    const text = data.toString("latin1");
    if (text.includes('"error"')) failures++;
    onData(text);
  });
  stream.on("error", () => failures++);
  return stream;
}

function wait(url: string): void {
  const request = { key: HOT_KEY, ttlMs: 10_000, releaseOnDisconnect: true };
  const stream = call(url, "Acquire", request, (text) => {
    events++;
    if (!text.includes('"acquired"')) return;
    setTimeout(() => stream.close(), HANDOVER_MS);
  });
}

function watch(url: string): void {
  call(url, "Watch", { prefix: PREFIX }, (text) => {
    events += text.split('"status"').length - 1;
  });
}

async function change(locks: Locks, leases: Lease[]): Promise<void> {
  for (let next = 0; ; next = (next + CHANGES) % leases.length) {
    for (let index = next; index < Math.min(leases.length, next + CHANGES); index++) {
      const { key } = leases[index] as Lease;
      await leases[index]?.release();
      leases[index] = await locks.mutex(key).acquire();
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const functions = {
  /** Holds the keys that are to be watched, and changes them from then on. */
  async fill({ url, keys }: Crowd): Promise<void> {
    const locks = createLocks(remoteStore(url), { requestTimeoutMs: 60_000 });
    const names = Array.from({ length: keys }, (_, n) => `${PREFIX}${n}`);
    const leases = await Promise.all(names.map((name) => locks.mutex(name).acquire()));
    void change(locks, leases).catch(() => failures++);
  },
  /** Makes all calls at once. */
  async come({ url, waiters, watchers }: Crowd): Promise<void> {
    for (let n = 0; n < watchers; n++) watch(url);
    for (let n = 0; n < waiters; n++) wait(url);
  },
  /** What came of it since this was asked before. */
  async counts(): Promise<{ events: number; failures: number }> {
    const counts = { events, failures };
    events = 0;
    failures = 0;
    return counts;
  },
};

export type CrowdProcess = typeof functions;

offer(functions);
