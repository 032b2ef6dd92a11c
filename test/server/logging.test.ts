/** The lines of the log, and the secrets that it never contains. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLocks, memoryStore, StoreUnavailableError } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { hashToken, type LockServer, type ServerOptions } from "holdfast/server";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { LogRate } from "../../src/server/error-log.ts";
import { claimRequest } from "../record/claim-request.ts";
import { storeOver } from "../stores/store-over.ts";
import { serve } from "./scene.ts";

/** A server that logs everything that it has to say, and the lines. */
async function logged(options: Partial<ServerOptions>): Promise<{ server: LockServer; lines: string[] }> {
  const lines: string[] = [];
  const logger = pino({ level: "trace" }, { write: (line: string) => void lines.push(line) });
  const server = await serve({ logger, ...options });
  return { server, lines };
}

/** A caller of simple calls. Every value that it sends and that must not be logged has "secret" in it. */
function callerOf(server: LockServer, token: string) {
  return async (method: string, body: object | string) => {
    const response = await fetch(`${server.url}/holdfast.v1.Locks/${method}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
    return response.status;
  };
}

test("no token or info is logged, and keys and ids only in the audit log, whatever is asked for and however it fails", async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-logging-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "tokens.json");
  const grants = [{ prefix: "secret-", verbs: ["acquire", "read", "admin"] }];
  const entry = { name: "caller", sha256: hashToken("caller-secret"), grants };
  writeFileSync(file, JSON.stringify({ tokens: [entry] }));
  const { server, lines } = await logged({ tokens: file, auditClaims: true, limits: { maxKeyBytes: 100 } });

  const call = callerOf(server, "caller-secret");
  const claim = { key: "secret-key", requestId: "secret-id", token: "secret-token", info: "secret-info" };
  const ref = { key: "secret-key", id: "secret-id", token: "secret-token" };
  expect(await call("AcquireDetached", claim)).toBe(200);
  expect(await call("AcquireDetached", { key: "secret-key", maxWaitMs: 0 })).toBe(200);
  expect(await call("Extend", ref)).toBe(200);
  expect(await call("Status", { key: "secret-key" })).toBe(200);
  expect(await call("List", { prefix: "secret-" })).toBe(200);
  expect(await call("ForceRelease", { key: "secret-key", id: "secret-id" })).toBe(200);
  expect(await call("Extend", ref)).toBe(400);
  expect(await call("Release", ref)).toBe(200);
  expect(await call("Release", { key: "other-secret", id: "i", token: "secret-token" })).toBe(403);
  expect(await call("AcquireDetached", { ...claim, key: `secret-${"x".repeat(100)}` })).toBe(400);
  expect(await call("AcquireDetached", '{"key": "secret-key", "token": "secret-')).toBe(400);
  expect(await callerOf(server, "wrong-secret")("Status", { key: "secret-key" })).toBe(401);

  const store = remoteStore(server.url, { token: "caller-secret" });
  onTestFinished(() => store.close());
  const locks = createLocks(store, { closeStore: false });
  onTestFinished(() => locks.close());
  await locks.mutex("secret-session").run(() => {}, { id: "secret-id", info: "secret-info" });
  await store.acquire(claimRequest("secret-id", { key: "other-secret" })).catch(() => {});
  const wrong = remoteStore(server.url, { token: "wrong-secret" });
  onTestFinished(() => wrong.close());
  await expect(wrong.look({ key: "secret-key", maxClaims: 1 })).rejects.toMatchObject({
    code: "UNAUTHORIZED",
  });

  // A token where its hash belongs, in a file that is no JSON any more.
  writeFileSync(file, `{ "tokens": [{ "name": "caller", "sha256": plain-secret }] }`);
  await expect.poll(() => lines.join(""), { timeout: 10_000 }).toContain("could not be read");
  await server.stop({ graceMs: 0 });
  expect(lines.join("")).toContain("stopped");
  const audit = lines.filter((line) => JSON.parse(line).audit !== undefined);
  expect(new Set(audit.map((line) => JSON.parse(line).audit))).toEqual(
    new Set(["granted", "released", "force-release", "refused"]),
  );
  expect(lines.filter((line) => line.includes("secret") && !audit.includes(line))).toEqual([]);
  expect(audit.join("")).not.toMatch(/secret-token|secret-info|caller-secret|wrong-secret|plain-secret/);
});

test("a store that fails is told once in a while, with what its driver said and without what it was asked", async () => {
  const command = { name: "evalsha", args: ["secret-token"] };
  const driverError = Object.assign(new Error("ERR out of order"), { code: "EDRIVER", command });
  const failing = storeOver(memoryStore(), {
    acquire: () => Promise.reject(driverError),
    release: () => Promise.reject(new StoreUnavailableError("secret-key", { cause: driverError })),
  });
  const { server, lines } = await logged({ store: failing });
  const store = remoteStore(server.url);
  onTestFinished(() => store.close());
  for (let time = 0; time < 5; time++) {
    await expect(store.acquire(claimRequest("secret-id"))).rejects.toMatchObject({ code: "STORE_FAILURE" });
    const release = store.release([{ key: "k", id: "i", token: "t" }]);
    await expect(release).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  }
  const told = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "the store fails");
  expect(told).toMatchObject([
    { code: "STORE_FAILURE", times: 1, err: { code: "EDRIVER", message: "ERR out of order" } },
    { code: "STORE_UNAVAILABLE", times: 1, err: { code: "EDRIVER", message: "ERR out of order" } },
  ]);
  expect(lines.join("")).not.toContain("secret");
});

test("whoever is cut off again and again does not fill the log", async () => {
  const { server, lines } = await logged({});
  for (let time = 0; time < 5; time++) {
    const connection = connectHttp2(server.url);
    const stream = connection.request({
      ":method": "POST",
      ":path": "/holdfast.v1.Session/Open",
      "content-type": "application/grpc+proto",
    });
    const ended = new Promise((resolve) => stream.once("trailers", resolve));
    stream.on("error", () => {}).resume();
    stream.write(Buffer.from([0, 0, 0, 0, 1, 7]));
    await ended;
    connection.destroy();
  }
  const told = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "cut clients off");
  expect(told).toMatchObject([{ reason: "malformed", times: 1 }]);
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  expect(metrics).toContain('holdfast_dropped_clients_total{reason="malformed"} 5');
});

test("what is told once in a while is told with how often it has happened", () => {
  const seldom = new LogRate(10_000);
  const told = [0, 1, 9_999, 10_000, 10_001, 30_000].map((nowMs) => seldom.add("a", nowMs));
  expect(told).toEqual([1, 0, 0, 3, 0, 2]);
  expect(seldom.add("b", 30_000)).toBe(1);
});
