/** Requests that no client of ours sends: each has an answer, and none is the end of the server. */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryStore } from "holdfast";
import { fileStore } from "holdfast/file";
import type { LockServer } from "holdfast/server";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { storeOver } from "../stores/store-over.ts";
import {
  dataFrame,
  dial,
  enveloped,
  headersFrame,
  http1,
  jsonCall,
  PREFACE,
  resetFrame,
  say,
  say2,
  settingsFrame,
} from "./raw-http.ts";
import { serve } from "./scene.ts";

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

const status = (answer: string) => Number(/^HTTP\/1\.1 (\d+)/.exec(answer)?.[1] ?? 0);

/** The server is there, and a lock can be had. */
async function expectWell({ port }: LockServer): Promise<void> {
  const answer = await say(port, jsonCall("AcquireDetached", { key: "well", requestId: "r", token: "t" }));
  expect(answer).toContain('"acquired":true');
}

describe("a request without a usable Host", () => {
  const hosts = ["", "[", "a b", "x:99999999", "x:", "[::1", "[zz]", "a/b", "a@b", "a:1:2", "%", "\u00e4"];

  test.each(methods)("%s over HTTP/1.0 has 400 as its answer", async (method) => {
    const server = await serve();
    const head = `POST /holdfast.v1.Locks/${method} HTTP/1.0\r\ncontent-type: application/json\r\n`;
    expect(status(await say(server.port, `${head}content-length: 2\r\n\r\n{}`))).toBe(400);
    await expectWell(server);
  });

  test.each(hosts)("Host %j over HTTP/1.1 has 400 as its answer, which says what is wrong", async (host) => {
    const server = await serve();
    for (const path of ["/holdfast.v1.Locks/Status", "/grpc.health.v1.Health/Check"]) {
      const request = http1("POST", path, { host, "content-type": "application/json" }, "{}");
      const answer = await say(server.port, request);
      expect(status(answer)).toBe(400);
      expect(answer).toContain("Host");
    }
    await expectWell(server);
  });

  test.each(hosts)(":authority %j over HTTP/2 has 400 as its answer", async (authority) => {
    const server = await serve();
    // An authority that HTTP/2 itself forbids ends the stream without a status.
    const json = { ":authority": authority, "content-type": "application/json" };
    const answer = await say2(server.url, { ":path": "/holdfast.v1.Locks/Status", ...json });
    expect([400, 0]).toContain(answer.status);
    for (const path of ["/holdfast.v1.Locks/Status", "/holdfast.v1.Session/Open"]) {
      const grpc = { ":authority": authority, "content-type": "application/grpc+proto" };
      const { headers } = await say2(server.url, { ":path": path, ...grpc });
      expect(["3", undefined]).toContain(headers["grpc-status"]);
    }
    await expectWell(server);
  });

  test.each(["localhost", "a_b", "127.0.0.1:80", "[::1]:7420", "[::1]", "xn--bcher-kva.example:65535"])(
    "Host %s is a usable one",
    async (host) => {
      const server = await serve({ hosts: ["a_b", "xn--bcher-kva.example"] });
      expect(status(await say(server.port, jsonCall("Status", { key: "k" }, { host })))).toBe(200);
    },
  );
});

describe("a stream of HTTP/2 that is reset in the segment that opens it", () => {
  test.each([
    ["/holdfast.v1.Session/Open", "application/grpc+proto"],
    ["/holdfast.v1.Locks/Acquire", "application/grpc+proto"],
    ["/holdfast.v1.Locks/Status", "application/json"],
    ["/healthz", "text/plain"],
    ["/nothing", "text/plain"],
  ])("%s: the server goes on, and counts no session or stream", async (path, type) => {
    const server = await serve();
    const socket = await dial(server.port);
    const method = path === "/healthz" ? "GET" : "POST";
    const headers = {
      ":method": method,
      ":scheme": "http",
      ":path": path,
      ":authority": "localhost",
      "content-type": type,
    };
    const streams = Array.from({ length: 20 }, (_, index) => 2 * index + 1).flatMap((id) => [
      headersFrame(id, headers),
      dataFrame(id, enveloped("{}")),
      resetFrame(id),
    ]);
    socket.write(Buffer.concat([PREFACE, settingsFrame(), ...streams]));
    await once(socket, "data");
    await expectWell(server);
    socket.destroy();
    await expect
      .poll(async () =>
        (await say(server.port, http1("GET", "/metrics", { host: "localhost" }))).match(
          /^holdfast_(sessions|streams) .*$/gm,
        ),
      )
      .toEqual(["holdfast_sessions 0", "holdfast_streams 0"]);
  });
});

test("a store that answers with what no message can hold fails that call alone", async () => {
  const onError = vi.spyOn(console, "error");
  const store = storeOver(memoryStore(), { look: async () => ({ keys: [{ nonsense: true } as never] }) });
  const server = await serve({ store });
  expect(status(await say(server.port, jsonCall("Status", { key: "k" })))).toBe(500);
  expect(onError).not.toHaveBeenCalled();
  vi.restoreAllMocks();
  await expectWell(server);
});

describe("what a store says about the machine that it runs on", () => {
  const fails = async () => {
    throw Object.assign(new Error("ENOENT: no such file, open '/srv/secret/locks.mdb'"), { code: "ENOENT" });
  };

  test.each([
    ["AcquireDetached", { key: "k", requestId: "r", token: "t", maxWaitMs: 0 }],
    ["Release", { key: "k", id: "r", token: "t" }],
    ["Extend", { key: "k", id: "r", token: "t" }],
    ["Status", { key: "k" }],
    ["List", { prefix: "" }],
    ["ForceRelease", { key: "k", id: "r" }],
  ])("is in no answer of %s, nor on the standard error", async (method, request) => {
    const onError = vi.spyOn(console, "error");
    const onStderr = vi.spyOn(process.stderr, "write");
    const store = storeOver(memoryStore(), { acquire: fails, renew: fails, release: fails, look: fails });
    const server = await serve({ store });
    const answer = await say(server.port, jsonCall(method, request));
    expect(status(answer)).toBe(500);
    expect(answer).toContain("The store failed. The server's log has the error.");
    expect(answer).not.toContain("/srv");
    expect([onError.mock.calls, onStderr.mock.calls]).toEqual([[], []]);
    vi.restoreAllMocks();
  });

  test("a long cursor is refused as such, over the file store", async () => {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const store = fileStore(folder);
    onTestFinished(() => store.close());
    const server = await serve({ store });
    await expectWell(server);
    for (const length of [513, 10_000]) {
      const answer = await say(server.port, jsonCall("List", { prefix: "", cursor: "x".repeat(length) }));
      expect(status(answer)).toBe(400);
      expect(answer).toContain("cursor must be");
      expect(answer).not.toContain(folder);
    }
  });
});
