/** Web pages that reach a server: by a name of their own that leads to it (DNS rebinding), or from another origin. */
import { once } from "node:events";
import { request as request1 } from "node:http";
import { connect } from "node:http2";
import { createLocks } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { hashToken, type LockServer, type ServerOptions } from "holdfast/server";
import { afterEach, describe, expect, test } from "vitest";
import { startLockServer } from "./lock-server.ts";

const servers: LockServer[] = [];

async function start(options: Partial<ServerOptions> = {}): Promise<LockServer> {
  const server = await startLockServer(options);
  servers.push(server);
  return server;
}

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.stop({ graceMs: 0 })));
});

type Headers = Readonly<Record<string, string>>;

const paths = [
  ["GET", "/metrics"],
  ["GET", "/healthz"],
  ["GET", "/readyz"],
  ["POST", "/holdfast.v1.Locks/List"],
  ["POST", "/grpc.health.v1.Health/Check"],
] as const;

/** The status of each path for these headers. */
async function statuses(server: LockServer, headers: Headers, version: 1 | 2): Promise<number[]> {
  const found: number[] = [];
  for (const [method, path] of paths) {
    const all = method === "POST" ? { "content-type": "application/json", ...headers } : headers;
    found.push(await (version === 1 ? ask1 : ask2)(server, method, path, all));
  }
  return found;
}

async function ask1(server: LockServer, method: string, path: string, headers: Headers): Promise<number> {
  const request = request1({ port: server.port, method, path, headers, agent: false });
  request.end(method === "POST" ? "{}" : undefined);
  const [response] = await once(request, "response");
  response.resume();
  return response.statusCode as number;
}

async function ask2(server: LockServer, method: string, path: string, headers: Headers): Promise<number> {
  const { host, ...others } = headers;
  const session = connect(server.url);
  const authority = host === undefined ? {} : { ":authority": host };
  const stream = session.request({ ":method": method, ":path": path, ...authority, ...others });
  stream.end(method === "POST" ? "{}" : undefined);
  const [answer] = await once(stream, "response");
  session.destroy();
  return answer[":status"] as number;
}

const served = paths.map(() => 200);
const refused = paths.map(() => 403);
const tokens = [{ name: "t", sha256: hashToken("t"), grants: [{ prefix: "", verbs: ["read" as const] }] }];

describe.each([1, 2] as const)("over HTTP/%i", (version) => {
  test.each([
    "localhost",
    "localhost.",
    "LOCALHOST:80",
    "app.localhost",
    "127.0.0.1",
    "[::1]:7420",
    "10.1.2.3",
  ])("without tokens the host %s is served", async (host) => {
    expect(await statuses(await start(), { host }, version)).toEqual(served);
  });

  test.each(["attacker.example", "attacker.example:7420", "localhost.attacker.example", "127.0.0.1.nip.io"])(
    "without tokens the host %s is refused, for all paths",
    async (host) => {
      expect(await statuses(await start(), { host }, version)).toEqual(refused);
    },
  );

  test("configured names are served, and no others", async () => {
    const server = await start({ hosts: ["Locks.internal"] });
    expect(await statuses(server, { host: "locks.internal:7420" }, version)).toEqual(served);
    expect(await statuses(server, { host: "more.locks.internal" }, version)).toEqual(refused);
  });

  test("with tokens any name is served, unless names are configured", async () => {
    const headers = { host: "locks.example", authorization: "Bearer t" };
    expect(await statuses(await start({ tokens }), headers, version)).toEqual(served);
    expect(await statuses(await start({ tokens, hosts: [] }), headers, version)).toEqual(refused);
  });

  test.each(["https://attacker.example", "http://localhost:3000", "null", "file://"])(
    "the origin %s is refused, with tokens as well",
    async (origin) => {
      const headers = { host: "localhost:7420", origin, authorization: "Bearer t" };
      expect(await statuses(await start(), headers, version)).toEqual(refused);
      expect(await statuses(await start({ tokens }), headers, version)).toEqual(refused);
    },
  );

  test("the server's own origin is served, behind a proxy that encrypts as well", async () => {
    const server = await start({ hosts: ["locks.internal"] });
    for (const headers of [
      { host: "localhost:7420", origin: "http://localhost:7420" },
      { host: "locks.internal", origin: "https://locks.internal" },
    ]) {
      expect(await statuses(server, headers, version)).toEqual(served);
    }
  });
});

test("a client of the library by a name that is not configured is told what to do", async () => {
  const server = await start();
  const session = connect(server.url);
  const stream = session.request({
    ":method": "POST",
    ":path": "/holdfast.v1.Session/Open",
    ":authority": "locks.internal:7420",
    "content-type": "application/grpc+proto",
  });
  const [headers] = await once(stream, "response");
  expect(headers).toMatchObject({ ":status": 200, "grpc-status": "7" });
  expect(decodeURIComponent(headers["grpc-message"])).toContain("--hosts");
  session.destroy();
});

test("refusals are counted", async () => {
  const server = await start();
  await statuses(server, { host: "attacker.example" }, 1);
  await statuses(server, { origin: "http://attacker.example" }, 2);
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  expect(metrics).toContain(`holdfast_dropped_clients_total{reason="foreign-host"} ${paths.length}`);
  expect(metrics).toContain(`holdfast_dropped_clients_total{reason="foreign-origin"} ${paths.length}`);
});

test("the name that the server listens on is one of its own", async () => {
  const server = await start({ host: "localhost" });
  const locks = createLocks(remoteStore(`http://localhost:${server.port}`), { closeStore: true });
  expect(await locks.mutex("k").tryRun(async () => 1)).toEqual({ ran: true, value: 1 });
  await locks.close();
});

test.each(["http://locks.internal", "locks.internal:7420", "", "*"])(
  "%j is no name to configure",
  async (name) => {
    await expect(startLockServer({ hosts: [name] })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  },
);
