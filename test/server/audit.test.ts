/** The audit log: who did what to which claim, and who was refused. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryStore, StoreUnavailableError } from "holdfast";
import { hashToken, type ServerOptions, type Verb } from "holdfast/server";
import { type Level, pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { Audit, auditLinesPerSecond } from "../../src/server/audit.ts";
import { UnknownCaller } from "../../src/server/call-errors.ts";
import { newClient } from "../../src/server/callers.ts";
import { claimRequest } from "../record/claim-request.ts";
import { storeOver } from "../stores/store-over.ts";
import { jsonCall, say } from "./raw-http.ts";
import { locksOf, serve, sessionOf } from "./scene.ts";

type Line = Readonly<Record<string, unknown>>;

/** A logger, and the audit lines that it is given, without what pino puts on every line. */
function auditLogger(level: Level = "info") {
  const lines: Line[] = [];
  const write = (text: string) => {
    const { time, pid, hostname, msg, ...line } = JSON.parse(text);
    if (msg === "audit") lines.push(line);
  };
  return { lines, logger: pino({ level }, { write }) };
}

const entry = (name: string, ...verbs: Verb[]) => ({
  name,
  sha256: hashToken(name),
  grants: [{ prefix: "own/", verbs }],
});
const tokens = [entry("alice", "acquire", "read"), entry("root", "acquire", "admin")];

async function audited(options: Partial<ServerOptions> = {}) {
  const { lines, logger } = auditLogger();
  const server = await serve({ tokens, logger, ...options });
  return { server, lines };
}

const WARN = 40;
const INFO = 30;
const address = expect.stringMatching(/^127\.0\.0\.1:\d+$/);
const claim = (id: string) => claimRequest(id, { key: "own/k", ttlMs: 60_000 });
const forced = { level: WARN, audit: "force-release", principal: "root", address, key: "own/k" };

describe("a force-release", () => {
  test.each(["a call", "a session"])(
    "by %s has a line, which names the claim and who ended it",
    async (by) => {
      const { server, lines } = await audited();
      const held = await sessionOf(server, "alice").acquire(claim("run-1"));
      const ref = { key: "own/k", id: "alice:run-1" };
      for (let time = 0; time < 2; time++) {
        if (by === "a call") await locksOf(server, "root").forceRelease(ref);
        else await sessionOf(server, "root").release([ref]);
      }
      const fence = `${(held as { fence: bigint }).fence}`;
      expect(lines).toEqual([
        { ...forced, id: "alice:run-1", outcome: "released", fence },
        { ...forced, id: "alice:run-1", outcome: "not-found" },
      ]);
    },
  );

  test("that the store did not answer has a line too", async () => {
    const failing = storeOver(memoryStore(), {
      release: () => Promise.reject(new StoreUnavailableError("gone")),
    });
    const { server, lines } = await audited({ store: failing });
    await expect(locksOf(server, "root").forceRelease({ key: "own/k", id: "i" })).rejects.toThrow("gone");
    expect(lines).toEqual([{ ...forced, id: "i", outcome: "failed" }]);
  });
});

describe("a refusal for want of rights has a line", () => {
  const refused = { level: WARN, audit: "refused", reason: "not-permitted", principal: "alice", address };

  test("with what was asked for, whatever asks", async () => {
    const { server, lines } = await audited();
    const [locks, session] = [locksOf(server, "alice"), sessionOf(server, "alice")];
    const elsewhere = { key: "other", id: "i", token: "t" };
    for (const ask of [
      () => locks.acquireDetached({ key: "other", requestId: "i" }),
      () => locks.release(elsewhere),
      () => locks.extend(elsewhere),
      () => locks.forceRelease({ key: "own/k", id: "i" }),
      () => locks.list({ prefix: "" }),
      () => session.acquire(claimRequest("i", { key: "other" })),
      () => session.renew([elsewhere]).then(([answer]) => Promise.reject(answer)),
      () => session.release([elsewhere]),
      () => session.release([{ key: "own/k", id: "i" }]),
      () => session.look({ key: "other", maxClaims: 1 }),
    ]) {
      await expect(ask()).rejects.toBeDefined();
    }
    const acquire = { ...refused, verb: "acquire", key: "other", id: "i" };
    const admin = { ...refused, verb: "admin", key: "own/k", id: "i" };
    const read = { ...refused, verb: "read" };
    expect(lines).toEqual([
      ...[acquire, acquire, acquire, admin, { ...read, key: "" }],
      ...[acquire, acquire, acquire, admin, { ...read, key: "other" }],
    ]);
  });

  test("without a token that is known", async () => {
    const { server, lines } = await audited();
    await expect(locksOf(server, "nobody").status({ key: "own/k" })).rejects.toThrow("requires a token");
    await expect(sessionOf(server, "nobody").acquire(claim("i"))).rejects.toThrow("requires a token");
    const line = { level: WARN, audit: "refused", reason: "unknown-token", address };
    expect(lines).toEqual([line, line]);
  });

  test("with a token that was taken back, which is named", async () => {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-audit-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "tokens.json");
    writeFileSync(file, JSON.stringify({ tokens }));
    const { server, lines } = await audited({ tokens: file });
    const session = sessionOf(server, "alice");
    await session.acquire(claim("i"));
    writeFileSync(file, '{ "tokens": [] }');
    await server.reloadTokens();
    await expect(session.renew([claim("i")])).rejects.toThrow("requires a token");
    expect(lines[0]).toEqual({ ...refused, reason: "unknown-token" });
  });

  test("for a web page", async () => {
    const { server, lines } = await audited();
    await say(server.port, jsonCall("List", {}, { origin: "https://attacker.example" }));
    expect(lines).toEqual([{ level: WARN, audit: "refused", reason: "foreign-origin", address }]);
  });
});

describe("claims", () => {
  test("that are granted, released and lost have lines if the server is told so", async () => {
    const store = memoryStore();
    const { server, lines } = await audited({ store, auditClaims: true });
    const [alice, root] = [sessionOf(server, "alice"), sessionOf(server, "root")];
    const acquired = await alice.acquire(claim("1"));
    alice.onGrant("waiter", () => {});
    // A waiting claim is logged once, whether the push or the heartbeat comes first.
    await alice.acquire({ ...claim("2"), owner: "waiter" });
    await alice.release([claim("1")]);
    const [granted] = await alice.renew([claim("2")]);
    // A claim that gives up waiting has no line.
    await root.acquire(claim("3"));
    await root.release([claim("3")]);
    // One whose end the server had no part in.
    await store.release([{ key: "own/k", id: "alice:2" }]);
    await alice.renew([claim("2")]);
    const by = { level: INFO, address, key: "own/k", principal: "alice" };
    const first = { ...by, id: "alice:1", fence: `${(acquired as { fence: bigint }).fence}` };
    const second = { ...by, id: "alice:2", fence: `${(granted as { fence: bigint }).fence}` };
    // A push may come before the answer of the release that it follows from.
    expect(lines.toSorted((a, b) => `${a["id"]}`.localeCompare(`${b["id"]}`))).toEqual([
      { ...first, audit: "granted" },
      { ...first, audit: "released" },
      { ...second, audit: "granted" },
      { ...second, audit: "lost" },
    ]);
  });

  test("of calls have the addresses of their callers", async () => {
    const { server, lines } = await audited({ auditClaims: true });
    const locks = locksOf(server, "alice");
    const { lease } = await locks.acquireDetached({ key: "own/k", ttlMs: 60_000, requestId: "run-1" });
    const { key, id, token, fence } = lease!;
    await locks.release({ key, id, token });
    const leaving = new AbortController();
    const request = { key: "own/k", requestId: "run-2", releaseOnDisconnect: true };
    const stream = locks.acquire(request, { signal: leaving.signal });
    await expect(
      (async () => {
        for await (const { event } of stream) if (event.case === "acquired") leaving.abort();
      })(),
    ).rejects.toThrow("abort");
    await expect.poll(() => lines.length).toBe(4);
    const by = { level: INFO, principal: "alice", address, key: "own/k" };
    expect(lines).toMatchObject([
      { ...by, audit: "granted", id: "alice:run-1", fence: `${fence}` },
      { ...by, audit: "released", id: "alice:run-1", fence: `${fence}` },
      { ...by, audit: "granted", id: "alice:run-2" },
      { ...by, audit: "released", id: "alice:run-2" },
    ]);
  });

  test("have none otherwise", async () => {
    const { server, lines } = await audited();
    await sessionOf(server, "alice").acquire(claim("1"));
    await sessionOf(server, "alice").release([claim("1")]);
    expect(lines).toEqual([]);
  });
});

describe("a client that would fill the log", () => {
  test("has so many lines a second, the rest are counted, and others have theirs", () => {
    const { lines, logger } = auditLogger();
    const audit = new Audit(logger, true);
    const asker = (name: string) => ({
      client: newClient(`the token "${name}"`, `${name}:`, name),
      peer: { address: "10.0.0.7", port: 1, certificate: undefined },
    });
    const { peer } = asker("");
    const forbidden = new UnknownCaller();
    for (let time = 0; time < 1_000; time++) {
      audit.failed(forbidden, asker("mallory"));
      audit.failed(forbidden, { peer: { ...peer, port: time } });
      audit.foreign("foreign-host", { ...peer, port: time });
    }
    audit.failed(forbidden, asker("alice"));
    audit.forced({ key: "k", id: "i" }, asker("mallory"), "released", 7n);
    const most = auditLinesPerSecond.refused;
    expect(lines).toHaveLength(2 * most + 2);
    expect(lines.slice(-2)).toMatchObject([
      { audit: "refused", principal: "alice" },
      { audit: "force-release", principal: "mallory" },
    ]);
    lines.length = 0;
    audit.nextSecond();
    const leftOut = { level: WARN, audit: "left-out", of: "refused" };
    expect(lines).toEqual([
      { ...leftOut, principal: "mallory", lines: 1_000 - most },
      { ...leftOut, lines: 2_000 - most },
    ]);
    audit.nextSecond();
    audit.failed(forbidden, asker("mallory"));
    expect(lines).toHaveLength(3);
  });

  test("has as few through a server, which tells of all when it stops", async () => {
    const { server, lines } = await audited();
    const began = performance.now();
    for (let time = 0; time < 100; time++) await say(server.port, jsonCall("List", {}));
    await server.stop({ graceMs: 0 });
    const seconds = Math.ceil((performance.now() - began) / 1_000) + 1;
    const refusals = lines.filter(({ audit }) => audit === "refused").length;
    expect(refusals).toBeLessThanOrEqual(seconds * auditLinesPerSecond.refused);
    const leftOut = lines.map(({ audit, lines: count }) => (audit === "left-out" ? Number(count) : 0));
    expect(refusals + leftOut.reduce((sum, count) => sum + count)).toBe(100);
  });

  test("can send neither long lines nor characters that a terminal obeys", async () => {
    const { server, lines } = await audited();
    const id = "\u001b[31m\n\u009b2J\u202e\u2028\\";
    const bearer = { authorization: "Bearer alice", host: "localhost" };
    await say(server.port, jsonCall("ForceRelease", { key: "k".repeat(500_000), id }, bearer));
    expect(lines).toMatchObject([
      {
        key: `${"k".repeat(512)}…`,
        id: expect.stringMatching(/^\\u\{1b\}\[31m\\u\{a\}\\u\{9b\}2J\\u\{202e\}\\u\{2028\}\\\\/),
      },
    ]);
    expect(JSON.stringify(lines)).toMatch(/^[\u0020-\u007e…]*$/);
  });
});
