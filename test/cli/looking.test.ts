/** `ls`, `inspect`, `release`, `watch`: what they print, for people and for programs. */
import { spawn } from "node:child_process";
import { createLocks, type Lease, type Locks, memoryStore } from "holdfast";
import type { LockServer } from "holdfast/server";
import { beforeAll, describe, expect, test } from "vitest";
import { startLockServer } from "../server/lock-server.ts";
import { atEnd, binFolder, cleanEnv, type Ended, run, start, temporaryFolder, until } from "./command.ts";

let server: LockServer;
let locks: Locks;

beforeAll(async () => {
  const store = memoryStore();
  server = await startLockServer({ store });
  locks = createLocks(store, { application: "tests" });
  atEnd(async () => {
    await server.stop({ graceMs: 0 });
    await locks.close();
  });
}, 120_000);

const env = () => ({ HOLDFAST_SERVER: server.url });
const holdfast = (...args: string[]) => run(args, { env: env() });

/** Through a shell, for pipes and terminals. */
function shell(script: string): Promise<Ended> {
  const path = `${binFolder(temporaryFolder())}:${process.env["PATH"]}`;
  const child = spawn("bash", ["-c", script], { env: cleanEnv({ ...env(), PATH: path, TERM: "xterm" }) });
  atEnd(() => child.kill("SIGKILL"));
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return new Promise((resolve) => {
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}

/** A claim as programs see it. */
const claim = (more: object) => ({
  id: expect.any(String),
  state: "held",
  mode: "exclusive",
  weight: 1,
  limit: 1,
  priority: 0,
  ttlMs: 30_000,
  expiresInMs: expect.any(Number),
  fence: expect.stringMatching(/^\d+$/),
  acquiredAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
  owner: locks.owner,
  info: "",
  application: "tests",
  ...more,
});

describe.concurrent("ls", () => {
  let held: Lease[] = [];
  beforeAll(async () => {
    held = [
      await locks.mutex("list/a").acquire({ info: "first" }),
      await locks.rwLock("list/b").read.acquire(),
      await locks.rwLock("list/b").read.acquire(),
      await locks.semaphore("list/c", 4).acquire({ permits: 2 }),
    ];
    return () => Promise.all(held.map((lease) => lease.release()));
  });

  test("prints a table, with the keys of a prefix in order", async () => {
    const { code, stdout, stderr } = await holdfast("ls", "list/");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const cells = stdout
      .trimEnd()
      .split("\n")
      .map((line) => line.split(/ {2,}/));
    const { owner } = locks;
    expect(cells).toEqual([
      ["KEY", "HELD BY", "ID", "MODE", "EXPIRES IN", "FENCE", "WAITING", "INFO"],
      ["list/a", owner, held[0]!.id, "exclusive", expect.any(String), `${held[0]!.fence}`, "0", "first"],
      ["list/b", `${owner} +1`, held[1]!.id, "shared", expect.any(String), `${held[1]!.fence}`, "0"],
      ["list/c", owner, held[3]!.id, "2/4", expect.any(String), `${held[3]!.fence}`, "0"],
    ]);
  });

  test("names the flag and shows the text that was written", async () => {
    expect(await holdfast("ls", "--max-claims", "many")).toMatchObject({
      code: 64,
      stderr: 'holdfast: --max-claims must be a whole number from 0 to 10000, not "many".\n',
    });
  });

  test("prints one JSON object a key", async () => {
    const { stdout } = await holdfast("ls", "list/", "--json");
    const views = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(views.sort((a, b) => (a.key < b.key ? -1 : 1))[0]).toEqual({
      key: "list/a",
      fence: `${held[0]!.fence}`,
      heldCount: 1,
      heldWeight: 1,
      waitingCount: 0,
      held: [claim({ id: held[0]!.id, info: "first" })],
      waiting: [],
    });
    expect(views[1].held).toEqual([
      claim({ mode: "shared", limit: null }),
      claim({ mode: "shared", limit: null }),
    ]);
    expect(views[2].held).toEqual([claim({ mode: "permits", weight: 2, limit: 4 })]);
  });

  test("says when there is nothing, where no program reads it", async () => {
    const { code, stdout, stderr } = await holdfast("ls", "none/");
    expect({ code, stdout, stderr }).toEqual({
      code: 0,
      stdout: "",
      stderr: 'No key that begins with "none/" is held or waited for.\n',
    });
  });

  test("ends quietly when nobody reads on", async () => {
    // More than a pipe takes without a reader.
    const many = await Promise.all(
      Array.from({ length: 500 }, (_, index) =>
        locks.mutex(`many/${index}`).acquire({ info: "x".repeat(300) }),
      ),
    );
    for (const options of ["--json", ""]) {
      const ended = await shell(`set -o pipefail; holdfast ls many/ ${options} | head -1 | wc -l`);
      expect(ended).toMatchObject({ code: 0, stdout: "1\n", stderr: "" });
    }
    await Promise.all(many.map((lease) => lease.release()));
  });

  test("has colours on a terminal, and none where they are not wanted", async () => {
    const colour = "\u001b[1m";
    expect((await shell("script -qec 'holdfast ls list/' /dev/null")).stdout).toContain(colour);
    expect((await shell("NO_COLOR=1 script -qec 'holdfast ls list/' /dev/null")).stdout).not.toContain(
      colour,
    );
    expect((await shell("holdfast ls list/")).stdout).not.toContain(colour);
  });
});

describe.concurrent("inspect", () => {
  test("shows holders and waiters in order", async () => {
    const lease = await locks.mutex("seen").acquire();
    const waiting = locks.mutex("seen").acquire({ priority: 3, info: "next" });
    await until("somebody waits", async () => (await locks.inspect("seen")).waitingCount === 1);
    const { stdout } = await holdfast("inspect", "seen");
    const lines = stdout.trimEnd().split("\n");
    expect(lines.slice(0, 3)).toEqual(["seen: 1 held, 1 waiting", `latest fence ${lease.fence}`, ""]);
    expect(lines[3]).toMatch(/^STATE +ID +MODE +PRIORITY +EXPIRES IN +FENCE +OWNER +INFO$/);
    expect(lines[4]).toContain(lease.id);
    expect(lines[5]).toMatch(/^waiting .* 3 .*next$/);
    const json = JSON.parse((await holdfast("inspect", "seen", "--json")).stdout);
    expect(json).toMatchObject({ key: "seen", heldCount: 1, waitingCount: 1 });
    expect(json.waiting).toEqual([
      claim({ state: "waiting", fence: null, acquiredAt: null, priority: 3, info: "next" }),
    ]);
    await lease.release();
    await (await waiting).release();
  });

  test("a key that nobody ever held is free", async () => {
    expect(await holdfast("inspect", "never")).toMatchObject({
      code: 0,
      stdout: "never: 0 held, 0 waiting\n",
    });
  });
});

describe.concurrent("release", () => {
  test("ends the claim that holds a key, and is 1 when there is none", async () => {
    const lease = await locks.mutex("end me").acquire();
    const { code, stdout } = await holdfast("release", "end me", "--yes");
    expect({ code, stdout }).toEqual({ code: 0, stdout: `released ${lease.id} on end me\n` });
    expect((await locks.inspect("end me")).heldCount).toBe(0);
    expect(await holdfast("release", "end me", "--yes")).toMatchObject({ code: 1, stdout: "" });
    expect(await holdfast("release", "end me", "no-such-id", "--yes", "--json")).toMatchObject({
      code: 1,
      stdout: '{"key":"end me","released":[]}\n',
    });
  });

  test("does not guess which of several is meant", async () => {
    const readers = await Promise.all([1, 2].map(() => locks.rwLock("several").read.acquire()));
    const unsure = await holdfast("release", "several", "--yes");
    expect(unsure.code).toBe(64);
    expect(unsure.stderr).toContain('2 claims hold "several"');
    expect((await holdfast("release", "several", readers[0]!.id, "--yes")).code).toBe(0);
    expect((await locks.inspect("several")).heldCount).toBe(1);
    const rest = await holdfast("release", "several", "--all", "--yes", "--json");
    expect(JSON.parse(rest.stdout)).toEqual({ key: "several", released: [readers[1]!.id] });
  });

  test("asks on a terminal, and does nothing without one", async () => {
    const lease = await locks.mutex("asked").acquire();
    expect(await holdfast("release", "asked")).toMatchObject({
      code: 64,
      stdout: "",
      stderr: expect.stringMatching(/input is not a terminal\.\n {2}Pass --yes/),
    });
    const no = await shell("script -qec 'holdfast release asked' /dev/null <<< n");
    expect(no.stdout).toContain("[y/N]");
    expect(no.code).toBe(1);
    expect(lease.held && (await locks.inspect("asked")).heldCount).toBe(1);
    expect((await shell("script -qec 'holdfast release asked' /dev/null <<< y")).code).toBe(0);
    expect((await locks.inspect("asked")).heldCount).toBe(0);
  });
});

describe.concurrent("watch", () => {
  test("prints each change as one JSON object, beginning with what is there", async () => {
    const first = await locks.mutex("w/a").acquire();
    const watching = start(["watch", "--prefix", "w/", "--json", "--interval", "100ms"], { env: env() });
    const events = () =>
      watching
        .stdout()
        .trimEnd()
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line));
    await until("it shows what is there", () => events().length === 1);
    const waiting = locks.mutex("w/a").acquire();
    await until("it shows the waiter", () => events().length === 2);
    await first.release();
    const second = await waiting;
    await until("it shows the handover", () => events().length === 4);
    await second.release();
    await until("it shows the end", () => events().length === 5);
    watching.kill("SIGINT");
    expect(await watching.ended).toMatchObject({ code: 130, stderr: "" });
    expect(events().map(({ event, key, claim: { id, fence } }) => [event, key, id, fence])).toEqual([
      ["held", "w/a", first.id, `${first.fence}`],
      ["waiting", "w/a", second.id, null],
      ["ended", "w/a", first.id, `${first.fence}`],
      ["held", "w/a", second.id, `${second.fence}`],
      ["ended", "w/a", second.id, `${second.fence}`],
    ]);
    expect(events()[0]).toEqual({
      at: expect.any(String),
      event: "held",
      key: "w/a",
      claim: claim({ id: first.id }),
    });
  });

  test("prints a line a change of one key, and goes on after an outage", async () => {
    const store = memoryStore();
    const other = createLocks(store);
    const own = await startLockServer({ store });
    const { port } = own;
    const watching = start(["watch", "k", "--interval", "100ms", "--server", own.url, "--timeout", "300ms"]);
    const lease = await other.mutex("k").acquire();
    await until("it shows the holder", () =>
      /^\S+ held {4}k \S+ exclusive fence \d+/.test(watching.stdout()),
    );
    await own.stop({ graceMs: 0 });
    await until("it tells of the outage", () => watching.stderr().includes("STORE_UNAVAILABLE"));
    const again = await startLockServer({ store, port });
    await until("it tells that it is over", () => watching.stderr().includes("answers again"));
    await lease.release();
    await until("it shows the end", () => /^\S+ ended {3}k /m.test(watching.stdout()));
    watching.kill("SIGTERM");
    expect((await watching.ended).code).toBe(143);
    await again.stop({ graceMs: 0 });
    await other.close();
  });

  test("draws a table again and again on a terminal", async () => {
    const lease = await locks.mutex("drawn").acquire({ info: "here" });
    const path = `${binFolder(temporaryFolder())}:${process.env["PATH"]}`;
    const terminal = spawn("script", ["-qec", "holdfast watch drawn --interval 100ms", "/dev/null"], {
      env: cleanEnv({ ...env(), PATH: path, TERM: "xterm" }),
    });
    atEnd(() => terminal.kill("SIGKILL"));
    let drawn = "";
    terminal.stdout.setEncoding("utf8").on("data", (text: string) => {
      drawn += text;
    });
    await until("it has drawn some", () => drawn.split("\u001b[H").length > 3);
    expect(drawn).toMatch(/^drawn .* exclusive /m);
    const ended = new Promise((resolve) => terminal.once("close", resolve));
    // As Ctrl-C does.
    terminal.stdin.write("\u0003");
    await ended;
    await lease.release();
  });
});
