/** `holdfast run`, as scripts and service managers see it. */
import { execFile, execFileSync } from "node:child_process";
import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { createLocks, type Locks, memoryStore } from "holdfast";
import type { LockServer } from "holdfast/server";
import { beforeAll, describe, expect, test } from "vitest";
import { startLockServer } from "../server/lock-server.ts";
import { root } from "../source-tree.ts";
import { atEnd, cleanEnv, run, start, temporaryFolder, until } from "./command.ts";

let server: LockServer;
let locks: Locks;

beforeAll(async () => {
  const store = memoryStore();
  server = await startLockServer({ store });
  locks = createLocks(store);
  atEnd(async () => {
    await server.stop({ graceMs: 0 });
    await locks.close();
  });
}, 120_000);

/** The server runs in this process, which starts a dozen others on a busy machine: its silence is no outage. */
const env = () => ({ HOLDFAST_SERVER: server.url, HOLDFAST_TIMEOUT: "50s" });
const runLocked = (...args: string[]) => run(["run", ...args], { env: env() });
const startLocked = (...args: string[]) => start(["run", ...args], { env: env() });

async function claimsOf(key: string): Promise<{ held: number; waiting: number }> {
  const { heldCount, waitingCount } = await locks.inspect(key);
  return { held: heldCount, waiting: waitingCount };
}

describe("the command", () => {
  test.concurrent("ends as its command does, and gives the lock back", async () => {
    expect(await runLocked("ok", "--", "true")).toMatchObject({ code: 0, stdout: "", stderr: "" });
    expect(await runLocked("seven", "--", "sh", "-c", "exit 7")).toMatchObject({ code: 7, stderr: "" });
    expect(await claimsOf("seven")).toEqual({ held: 0, waiting: 0 });
  });

  test.concurrent("finds the key, the fence and the id in its environment", async () => {
    const script = 'echo "$HOLDFAST_KEY $HOLDFAST_ID $HOLDFAST_FENCE"';
    const runOnce = () => runLocked("with env", "--id", "job-1", "--", "sh", "-c", script);
    const fences: bigint[] = [];
    for (let time = 0; time < 2; time++) {
      const { code, stdout, stderr } = await runOnce();
      const [, fence = ""] = /^with env job-1 (\d+)\n$/.exec(stdout) ?? [];
      expect({ code, stderr, stdout }).toEqual({ code: 0, stderr: "", stdout: `with env job-1 ${fence}\n` });
      fences.push(BigInt(fence));
    }
    expect(fences[1]).toBeGreaterThan(fences[0]!);
  });

  test.concurrent("finds the rest of our environment as it is, also what a shell cannot name", async () => {
    const options = { env: { ...env(), "odd.name": "a b", PLAIN: "x=y" } };
    const { stdout } = await run(["run", "odd", "--", "env"], options);
    expect(stdout.split("\n")).toEqual(expect.arrayContaining(["odd.name=a b", "PLAIN=x=y"]));
  });

  test.concurrent("is started by no command line that shows them", async () => {
    // A program of that name would have had them among its arguments.
    const folder = temporaryFolder();
    const log = join(folder, "arguments");
    writeFileSync(join(folder, "env"), `#!/bin/sh\necho "$@" >>${log}\nexec /usr/bin/env "$@"\n`, {
      mode: 0o755,
    });
    const PATH = `${folder}:${process.env["PATH"]}`;
    const options = { env: { ...env(), "odd.name": "secret", PATH, BASH_ENV: join(folder, "env") } };
    const { stdout } = await run(["run", "unseen", "--", "/usr/bin/env"], options);
    expect(stdout).toContain("odd.name=secret\n");
    expect(existsSync(log)).toBe(false);
  });

  test.concurrent("is not started without variables that no shell of the system passes on", async () => {
    const options = { env: { ...env(), "odd.name": "secret", PATH: temporaryFolder() } };
    const ended = await run(["run", "dropped", "--", "/usr/bin/env"], options);
    expect(ended).toMatchObject({
      code: 126,
      stdout: "",
      stderr: expect.stringContaining('"odd.name".\n  Install bash'),
    });
    expect(ended.stderr).not.toContain("secret");
    expect(await claimsOf("dropped")).toEqual({ held: 0, waiting: 0 });
  });

  test.concurrent("has no file open but its own", async () => {
    const { stdout } = await runLocked("files", "--", "ls", "/proc/self/fd");
    // As if we had started it ourselves: whatever runs the tests may have left some open for all.
    expect(stdout).toBe((await promisify(execFile)("ls", ["/proc/self/fd"])).stdout);
  });

  test.concurrent("has our input, output and errors", async () => {
    const options = { env: env(), input: "a line\nand another" };
    const ended = await run(["run", "stdio", "--", "sh", "-c", "cat; echo told >&2"], options);
    expect(ended).toMatchObject({ code: 0, stdout: "a line\nand another", stderr: "told\n" });
  });

  test.concurrent("gets its options as they are", async () => {
    const { stdout } = await runLocked(
      "args",
      "--",
      "printf",
      "%s|",
      "--ttl",
      "-x",
      "--",
      "a b",
      "$HOME",
      "",
    );
    expect(stdout).toBe("--ttl|-x|--|a b|$HOME||");
  });

  test.concurrent("that is killed by a signal is 128 and its number", async () => {
    expect(await runLocked("killed", "--", "sh", "-c", "kill -KILL $$")).toMatchObject({ code: 137 });
    expect(await runLocked("termed", "--", "sh", "-c", "kill -TERM $$")).toMatchObject({ code: 143 });
  });

  test.concurrent("that is not there is 127, and one that cannot be executed 126", async () => {
    const missing = await runLocked("missing", "--", "no-such-command-here");
    expect(missing).toMatchObject({
      code: 127,
      stderr: 'holdfast: the command "no-such-command-here" was not found.\n  Check its name and PATH.\n',
    });
    const file = join(temporaryFolder(), "plain");
    writeFileSync(file, "");
    chmodSync(file, 0o644);
    const plain = await runLocked("plain", "--", file);
    expect(plain.code).toBe(126);
    expect(plain.stderr).toContain("is not executable");
    expect((await runLocked("folder", "--", temporaryFolder())).code).toBe(126);
    expect(await claimsOf("missing")).toEqual({ held: 0, waiting: 0 });
  });

  test.concurrent("holds the lock while it runs, and one runs at a time", async () => {
    const file = join(temporaryFolder(), "log");
    const script = `echo in >> ${file}; sleep 0.2; echo out >> ${file}`;
    const ended = await Promise.all([1, 2, 3].map(() => runLocked("turns", "--", "sh", "-c", script)));
    expect(ended.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(readFileSync(file, "utf8")).toBe("in\nout\n".repeat(3));
  });

  test.concurrent("can share the lock, or take permits", async () => {
    const reader = await locks.rwLock("shared").read.acquire();
    expect(await runLocked("shared", "--shared", "--wait", "0", "--", "true")).toMatchObject({ code: 0 });
    expect(await runLocked("shared", "--wait", "0", "--", "true")).toMatchObject({ code: 75 });
    await reader.release();
    const taken = await locks.semaphore("permits", 3).acquire({ permits: 2 });
    expect(await runLocked("permits", "--permits", "1/3", "--wait", "0", "--", "true")).toMatchObject({
      code: 0,
    });
    expect(await runLocked("permits", "--permits", "2/3", "--wait", "0", "--", "true")).toMatchObject({
      code: 75,
    });
    await taken.release();
  });
});

describe("not acquired", () => {
  test.concurrent("is 75, and names the holder and the time left", async () => {
    const lease = await locks.mutex("taken").acquire({ info: "the other one" });
    const { code, stderr } = await runLocked("taken", "--wait", "1s", "--", "echo", "ran");
    expect(code).toBe(75);
    expect(stderr).toMatch(
      /^holdfast: ACQUIRE_TIMEOUT: "taken" is held by \S+ \("the other one"\) for up to \d+\.\ds more\.\n$/,
    );
    expect(await claimsOf("taken")).toEqual({ held: 1, waiting: 0 });
    await lease.release();
  });

  test.concurrent("is what --contended-exit-code says, and 0 prints nothing", async () => {
    const lease = await locks.mutex("contended").acquire();
    const tryWith = (code: string) =>
      runLocked("contended", "--wait", "0", "--contended-exit-code", code, "--", "echo", "ran");
    expect(await tryWith("9")).toMatchObject({
      code: 9,
      stdout: "",
      stderr: expect.stringContaining("is held by"),
    });
    expect(await tryWith("0")).toMatchObject({ code: 0, stdout: "", stderr: "" });
    await lease.release();
    // It is the code of contention alone.
    expect(await tryWith("9")).toMatchObject({ code: 0, stdout: "ran\n" });
    const options = ["--contended-exit-code", "9", "--server", "127.0.0.1:1", "--", "true"];
    expect((await run(["run", "contended", ...options])).code).toBe(69);
  });

  test.concurrent.each([
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const)("%s while waiting is %i, and leaves no claim", async (signal, code) => {
    const key = `interrupted by ${signal}`;
    const lease = await locks.mutex(key).acquire();
    const waiting = startLocked(key, "--", "echo", "ran");
    await until("it waits", async () => (await claimsOf(key)).waiting === 1);
    waiting.kill(signal);
    expect(await waiting.ended).toMatchObject({ code, stdout: "", stderr: "" });
    expect(await claimsOf(key)).toEqual({ held: 1, waiting: 0 });
    await lease.release();
  });

  test.concurrent("a higher priority goes first", async () => {
    const lease = await locks.mutex("order").acquire();
    const file = join(temporaryFolder(), "log");
    const wait = (name: string, ...options: string[]) =>
      startLocked("order", ...options, "--", "sh", "-c", `echo ${name} >> ${file}`);
    const usual = wait("usual");
    await until("the usual one waits", async () => (await claimsOf("order")).waiting === 1);
    const urgent = wait("urgent", "--priority", "9");
    await until("both wait", async () => (await claimsOf("order")).waiting === 2);
    await lease.release();
    await Promise.all([usual.ended, urgent.ended]);
    expect(readFileSync(file, "utf8")).toBe("urgent\nusual\n");
  });
});

describe("signals", () => {
  test.concurrent.each(["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"] as const)(
    "%s is passed on, and what the command makes of it counts",
    async (signal) => {
      const name = signal.slice(3);
      const script = `trap 'echo got ${name}; exit 9' ${name}; echo ready; while :; do sleep 0.05; done`;
      const running = startLocked(`forward ${signal}`, "--", "sh", "-c", script);
      await until("it runs", () => running.stdout() === "ready\n");
      running.kill(signal);
      expect(await running.ended).toMatchObject({ code: 9, stdout: `ready\ngot ${name}\n` });
      expect(await claimsOf(`forward ${signal}`)).toEqual({ held: 0, waiting: 0 });
    },
  );

  test.concurrent("reach what the command has started as well", async () => {
    const script =
      "sh -c 'trap \"echo child; exit\" TERM; echo ready; while :; do sleep 0.05; done' & trap 'wait; exit 3' TERM; wait";
    const running = startLocked("group", "--", "sh", "-c", script);
    await until("it runs", () => running.stdout() === "ready\n");
    running.kill("SIGTERM");
    expect(await running.ended).toMatchObject({ code: 3, stdout: "ready\nchild\n" });
  });

  test.concurrent("a command that is stopped by Ctrl-Z goes on with us", async () => {
    // It waits for a word, and starts nothing meanwhile: a shell that is stopped in the middle of that is not shown as stopped, but as
    // waiting for what it has started.
    const word = join(temporaryFolder(), "word");
    execFileSync("mkfifo", [word]);
    const script = `echo $$; read -r word < ${word}; echo $word`;
    const running = startLocked("stopped", "--ttl", "60s", "--", "sh", "-c", script);
    await until("it runs", () => running.stdout() !== "");
    const child = Number(running.stdout());
    running.kill("SIGTSTP");
    await until("both are stopped", () => [running.pid, child].every((pid) => stateOf(pid) === "T"));
    const told = writeFile(word, "on\n");
    running.kill("SIGCONT");
    await told;
    expect(await running.ended).toMatchObject({ code: 0, stdout: `${child}\non\n` });
  });
});

function stateOf(pid: number): string {
  return readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .slice(0, 1);
}

describe("what a command leaves behind", () => {
  test.concurrent("goes on when the command has ended well", async () => {
    const { code, stdout } = await runLocked("left", "--", "sh", "-c", "sleep 60 > /dev/null 2>&1 & echo $!");
    const left = Number(stdout);
    atEnd(() => process.kill(left, "SIGKILL"));
    expect(code).toBe(0);
    // The watchdog hears of the end before it could take the silence for a crash.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(stateOf(left)).toBe("S");
  });
});

describe("a terminal", () => {
  /** Runs it on a terminal of its own. */
  const onTerminal = (...options: string[]) => {
    const script = "(echo seen > /dev/tty) 2> /dev/null || echo unseen";
    const words = [
      process.execPath,
      "dist/cli/main.js",
      "run",
      "tty",
      ...options,
      "--",
      "sh",
      "-c",
      `'${script}'`,
    ];
    return promisify(execFile)("script", ["-qec", words.join(" "), "/dev/null"], {
      cwd: root,
      env: cleanEnv(env()),
    });
  };

  test("is the command's with --foreground", async () => {
    expect((await onTerminal("--foreground")).stdout).toBe("seen\r\n");
    expect((await onTerminal()).stdout).toBe("unseen\r\n");
  });
});

describe("wrong usage is 64, and says what to do", () => {
  test.concurrent.each([
    [[], "a command is missing or unknown."],
    [["token"], "a command is missing or unknown."],
    [["nonsense"], "The commands are run, serve, ls,"],
    [["ls", "--nonsense"], "Write: holdfast ls [options] [prefix]\n  Run holdfast ls --help for more."],
    [["run"], "missing required argument 'key'"],
    [["run", "k"], "Write: holdfast run <key> [options] -- <command> [arguments...]"],
    [["run", "--", "echo", "hi"], "the key is missing before --.\n  Write: holdfast run <key> -- echo hi"],
    [["run", "--ttl", "5s", "--", "echo", "hi"], "Write: holdfast run <key> -- echo hi"],
    [["run", "a", "b", "--", "echo", "hi"], "only the key may stand before --"],
    [["run", "k"], "missing required argument 'command'"],
    [["run", "k", "--tll", "5s", "--", "true"], "Did you mean --ttl?"],
    [["run", "k", "--ttl", "5", "--", "true"], "--ttl must be a duration such as 500ms"],
    [["run", "k", "--ttl", "300ms", "--", "true"], "--ttl 300ms is too short to stop the command in time"],
    [["run", "k", "--kill-after", "20s", "--", "true"], "Use --ttl 42s or more, or a shorter --kill-after."],
    [["run", "k", "--max-hold", "5s", "--", "true"], "--max-hold 5s leaves the command no time"],
    [["run", "k", "--shared", "--permits", "1/2", "--", "true"], "--shared and --permits exclude each other"],
    [["run", "k", "--permits", "3/2", "--", "true"], "--permits must be n/m"],
    [
      ["run", "k", "--max-hold", "1s", "--", "true"],
      "Make it longer than --kill-after and --margin together",
    ],
    [["run", "k", "--priority", "-1", "--", "true"], "--priority must be a whole number from 0 to 65535"],
    [["run", "k", "--priority", "high", "--", "true"], 'from 0 to 65535, not "high".'],
    [["run", "k", "--ttl", "5ms", "--", "true"], "--ttl must be from 10ms to 1d, not 5ms."],
    [["run", "k", "--permits", "1/9999999999", "--", "true"], "--permits must be n/m"],
    [
      ["run", "k", "--contended-exit-code", "256", "--", "true"],
      "--contended-exit-code must be a whole number",
    ],
    [["run", "k", "--id", "", "--", "true"], "--id must be 1 to 128 bytes of UTF-8, but it is empty."],
    [
      ["run", "k", "--info", "i".repeat(1_025), "--", "true"],
      "--info must be 0 to 1024 bytes of UTF-8, not 1025",
    ],
    [["run", "k", "--token", "a b", "--", "true"], "--token must be"],
    [["run", "", "--", "true"], "<key> must be 1 to 512 bytes of UTF-8, but it is empty."],
    [["run", "k", "--store", "memory:", "--", "true"], "holdfast serve --memory"],
    [
      ["run", "k", "--store", "redis://r", "--server", "s", "--", "true"],
      "--store and --server exclude each other",
    ],
    [["run", "k", "--store", "nonsense", "--", "true"], "--store must begin with one of memory:"],
    [["run", "k", "--store", "Memory:", "--", "true"], "holdfast serve --memory"],
    [["ls", "--store", "redis://u:s3cret@h:70000"], 'port from 1 to 65535 after the host "h", not 70000'],
    [["rum", "k"], "Did you mean run?"],
  ])("%j", async (args, message) => {
    const { code, stdout, stderr } = await run(args, { env: env() });
    expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
    expect(stderr).toContain(message);
    expect(stderr).not.toMatch(/^ +at |s3cret/m);
  });
});

test("a server that is not there is 69, and says what to do where none was named", async () => {
  const named = await run(["run", "k", "--server", "127.0.0.1:1", "--", "true"]);
  expect(named.code).toBe(69);
  expect(named.stderr).toMatch(
    /^holdfast: STORE_UNAVAILABLE: .*127\.0\.0\.1:1 cannot be reached: connect ECONNREFUSED/,
  );
  expect(named.stderr).not.toContain("pending stream");
  const encrypted = await run(["ls", "--server", server.url.replace("http:", "https:")]);
  expect(encrypted.code).toBe(69);
});
