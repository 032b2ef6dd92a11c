/** The log that a server has by default, with readers of every kind. The end of a server with such a log: test/cli/serve.test.ts. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { until } from "../engines/engine.ts";
import { compiled, forkProgram } from "../programs.ts";

const program = new URL("./log-process.ts", import.meta.url);
/** The room in a socket, which fills before the log keeps lines for a slow reader. */
const SOCKET_BYTES = 1_000_000;
const KEPT_BYTES = 1_048_576;

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-log-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts a process that logs. Its output is nobody's until it is read. */
async function logging(output: "pipe" | number = "pipe") {
  const child = forkProgram(program, [], { stdio: ["ignore", output, "inherit", "ipc"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(child, "message");
  return {
    child,
    /** Resolves to what it says when it has done that. */
    async does(what: string): Promise<unknown> {
      const told = once(child, "message");
      child.send(what);
      const [message] = await told;
      return message;
    },
  };
}

/** All that it has logged, at its end. */
async function readToTheEnd({ stdout }: ChildProcess): Promise<Record<string, unknown>[]> {
  let text = "";
  for await (const chunk of stdout!.setEncoding("utf8")) text += chunk;
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

describe("the log of a server", () => {
  test("has every line, in order, also where the process exits without a word", async () => {
    const { child, does } = await logging();
    await does("log");
    child.send("exit");
    const lines = await readToTheEnd(child);
    expect(lines.map(({ line }) => line)).toEqual([...Array(20).keys()]);
  });

  test("has every line in a file, also where the process exits without a word", async () => {
    const path = join(temporaryFolder(), "log");
    const file = openSync(path, "w");
    const { child, does } = await logging(file);
    closeSync(file);
    await does("log");
    const ended = once(child, "close");
    child.send("exit");
    await ended;
    expect(readFileSync(path, "utf8").trimEnd().split("\n")).toHaveLength(20);
  });

  test("may be closed more than once, writes nothing after that, and leaves nothing that keeps a process", async () => {
    const { child, does } = await logging();
    await does("log");
    await does("close");
    expect(await does("timers")).toEqual([]);
    await does("log");
    child.send("exit");
    expect(await readToTheEnd(child)).toHaveLength(20);
  });

  test("keeps a bounded part for a reader that has stopped reading, and says what is lost when it goes on", async () => {
    const { child, does } = await logging();
    await does("log much");
    const reading = readToTheEnd(child);
    await does("close");
    child.send("exit");
    const lines = await reading;
    const numbers = lines.map(({ line }) => line).filter((line) => line !== undefined);
    expect(numbers).toEqual([...Array(numbers.length).keys()]);
    const bytes = lines.reduce((sum, line) => sum + JSON.stringify(line).length + 1, 0);
    expect(bytes).toBeGreaterThan(KEPT_BYTES / 2);
    expect(bytes).toBeLessThan(KEPT_BYTES + SOCKET_BYTES);
    expect(lines.at(-1)).toMatchObject({ level: 40, lines: 40_000 - numbers.length });
  });

  test("is no error where its reader has gone away", async () => {
    const { child, does } = await logging();
    child.stdout!.destroy();
    await does("log");
    await does("log much");
    // Nothing is kept for it, so there is nothing to wait for.
    expect(await does("close at once")).toBe("at once");
    const ended = once(child, "close");
    child.send("exit");
    expect(await ended).toEqual([0, null]);
  });

  test.each([
    ["a terminal that is stopped", "terminal"],
    ["a pipe that nobody reads", "pipe"],
  ])("keeps no process from its end, with %s", async (_, output) => {
    const file = join(temporaryFolder(), "pid");
    const command = `'${process.execPath}' '${compiled(program)}' '${file}'`;
    const [name, args] =
      output === "terminal"
        ? ["script", ["-qec", command, "/dev/null"]]
        : ["sh", ["-c", `${command} | sleep 600`]];
    const reader = spawn(name, args, { stdio: ["ignore", "ignore", "inherit"], detached: true });
    onTestFinished(() => void process.kill(-reader.pid!, "SIGKILL"));
    await until("it is ready", async () => existsSync(file) && readFileSync(file, "utf8") !== "");
    const pid = Number(readFileSync(file, "utf8"));
    onTestFinished(() => {
      if (!hasEnded(pid)) process.kill(pid, "SIGKILL");
    });
    // `script` reads the terminal.
    if (output === "terminal") reader.kill("SIGSTOP");
    process.kill(pid, "SIGUSR2");
    await until("the log is closed", async () => existsSync(`${file}.closed`));
    await until("it has ended", async () => hasEnded(pid));
  });
});

/** Reads the state from /proc, because the parent of the process may be stopped. */
function hasEnded(pid: number): boolean {
  try {
    return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return true;
  }
}
