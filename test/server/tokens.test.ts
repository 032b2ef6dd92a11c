import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryStore } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { hashToken, startServer, type TokenEntry } from "holdfast/server";
import { pino } from "pino";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { startLockServer } from "./lock-server.ts";

const folder = mkdtempSync(join(tmpdir(), "holdfast-tokens-"));
afterAll(() => rmSync(folder, { recursive: true }));

const entry = (name: string, prefix = ""): TokenEntry => ({
  name,
  sha256: hashToken(name),
  grants: [{ prefix, verbs: ["acquire", "read", "admin"] }],
});

let files = 0;

/** Replaces the file as a whole, as configuration management does. */
function writeTokens(path: string, entries: readonly TokenEntry[] | string): void {
  const text = typeof entries === "string" ? entries : JSON.stringify({ tokens: entries });
  writeFileSync(`${path}.new`, text);
  renameSync(`${path}.new`, path);
}

describe("a token file", () => {
  test("is read again when it changes: new tokens are let in, and old ones are not, not even on an open session", async () => {
    const path = join(folder, `tokens-${++files}.json`);
    writeTokens(path, [entry("first")]);
    const server = await startLockServer({ tokens: path });
    const first = remoteStore(server.url, { token: "first" });
    const second = remoteStore(server.url, { token: "second" });
    const look = { key: "k", maxClaims: 0 };
    await first.look(look);
    await expect(second.look(look)).rejects.toMatchObject({ code: "UNAUTHORIZED" });
    writeTokens(path, [entry("second")]);
    await expect
      .poll(() => first.look(look).then(String, (error) => error.code), { timeout: 8_000 })
      .toBe("UNAUTHORIZED");
    await expect.poll(() => second.look(look).then(() => "ok", String), { timeout: 8_000 }).toBe("ok");
    await Promise.all([first.close(), second.close()]);
    await server.stop({ graceMs: 0 });
  });

  test("that has become wrong leaves the tokens as they were, and says so", async () => {
    const path = join(folder, `tokens-${++files}.json`);
    writeTokens(path, [entry("first")]);
    const lines: string[] = [];
    const logger = pino({ level: "error" }, { write: (line: string) => void lines.push(line) });
    const server = await startLockServer({ tokens: path, logger });
    writeTokens(path, '{ "tokens": [{ "name": "broken" }] }');
    await expect.poll(() => lines.join(""), { timeout: 8_000 }).toContain("previous tokens stay");
    const store = remoteStore(server.url, { token: "first" });
    await store.look({ key: "k", maxClaims: 0 });
    await store.close();
    await server.stop({ graceMs: 0 });
  });

  test("that is gone leaves the tokens as they were, which is said once, and is read when it is back", async () => {
    const path = join(folder, `tokens-${++files}.json`);
    writeTokens(path, [entry("first")]);
    const lines: string[] = [];
    const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    onTestFinished(() => void vi.useRealTimers());
    const server = await startLockServer({ tokens: path, logger });
    const said = (what: string) => {
      vi.advanceTimersByTime(1_000);
      return lines.filter((line) => line.includes(what)).length;
    };
    renameSync(path, `${path}.away`);
    await expect.poll(() => said("could not be read"), { timeout: 8_000 }).toBe(1);
    for (let time = 0; time < 5; time++) {
      said("");
      await expect(stat(path)).rejects.toThrow();
    }
    const store = remoteStore(server.url, { token: "first" });
    await store.look({ key: "k", maxClaims: 0 });
    writeTokens(path, [entry("first"), entry("second")]);
    await expect.poll(() => said("read the token file again"), { timeout: 8_000 }).toBe(1);
    expect(said("could not be read")).toBe(1);
    await store.close();
    await server.stop({ graceMs: 0 });
  });

  test.each([
    ["is not JSON", "{"],
    ["has no list", "{}"],
    ["has a token without a name", '{"tokens":[{"sha256":"00","grants":[]}]}'],
    ["has a token in plain text", '{"tokens":[{"name":"n","sha256":"secret","grants":[]}]}'],
    [
      "has a verb that there is not",
      `{"tokens":[{"name":"n","sha256":"${hashToken("x")}","grants":[{"prefix":"","verbs":["fly"]}]}]}`,
    ],
  ])("that %s is refused at the start", async (_, text) => {
    const path = join(folder, `tokens-${++files}.json`);
    writeFileSync(path, text);
    await expect(startLockServer({ tokens: path })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });
});

describe("listening", () => {
  test("beyond loopback takes tokens, or the word insecure", async () => {
    const silent = pino({ level: "silent" });
    const common = { store: memoryStore(), port: 0, logger: silent };
    await expect(startServer({ ...common, host: "0.0.0.0" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
    for (const options of [{ insecure: true }, { tokens: [entry("t")] }]) {
      const server = await startServer({ ...common, host: "0.0.0.0", ...options });
      expect(server.port).toBeGreaterThan(0);
      await server.stop({ graceMs: 0 });
    }
  });

  test("is on loopback unless told otherwise", async () => {
    const server = await startLockServer();
    expect(server.host).toBe("127.0.0.1");
    await server.stop({ graceMs: 0 });
  });

  test("fails where the port is taken", async () => {
    const server = await startLockServer();
    await expect(startLockServer({ port: server.port })).rejects.toMatchObject({ code: "EADDRINUSE" });
    await server.stop({ graceMs: 0 });
  });
});
