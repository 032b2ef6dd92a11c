import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { memoryStore, type Store } from "holdfast";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { serveStore } from "../../examples/replicas/ipc-store.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
// As scripts/replicas.js runs it: against the built package.
const env = { ...process.env, TSX_TSCONFIG_PATH: "examples/tsconfig.json" };

interface Line {
  readonly who: string;
  readonly what: string;
}

interface Demo {
  readonly process: ChildProcess;
  readonly lines: Line[];
  readonly output: () => string;
  readonly ended: Promise<unknown[]>;
}

function startDemo(): Demo {
  const child = spawn(process.execPath, ["--import", "tsx", "examples/replicas/main.ts"], { cwd: root, env });
  const lines: Line[] = [];
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      lines.splice(0, lines.length, ...parseLines(output));
    });
  }
  return { process: child, lines, output: () => output, ended: once(child, "close") };
}

function parseLines(output: string): Line[] {
  return [...output.matchAll(/^ *\d+\.\d\d s {2}(\S+) +(.*)\n/gm)].map(([, who = "", what = ""]) => ({
    who,
    what,
  }));
}

function replicaPids(lines: readonly Line[]): number[] {
  return lines.flatMap(({ what }) => /^starts as process (\d+)$/.exec(what)?.[1] ?? []).map(Number);
}

/** Whether a process exists. One that ended but was not yet waited for by anybody is over, too. */
function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    const stat = `/proc/${pid}/stat`;
    return !(existsSync(stat) && / Z /.test(readFileSync(stat, "utf8")));
  } catch {
    return false;
  }
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 10));
}

describe("the replicas example", () => {
  let demo: Demo;
  let code: unknown;

  beforeAll(async () => {
    demo = startDemo();
    [code] = await demo.ended;
  }, 60_000);

  test("one replica runs the job, is killed, and the next takes over with a higher fence", () => {
    expect(code, demo.output()).toBe(0);
    const grants = demo.lines.flatMap(({ who, what }) => {
      const grant = /^holds the lock, fence (\d+): (.*)$/.exec(what);
      return grant === null ? [] : [{ who, fence: BigInt(grant[1] ?? ""), what: grant[2] }];
    });
    expect(grants.map(({ what }) => what)).toEqual([
      "runs the job",
      "takes over after part 3",
      "nothing is left to do",
    ]);
    expect(new Set(grants.map(({ who }) => who)).size).toBe(3);
    const fences = grants.map(({ fence }) => fence);
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => (a < b ? -1 : 1)));

    const killed = demo.lines.find(({ what }) => what.startsWith("is dead"));
    expect(killed).toEqual({ who: grants[0]?.who, what: "is dead (SIGKILL)" });
    const parts = demo.lines.flatMap(({ what }) => /^part (\d) of 8 is done$/.exec(what)?.[1] ?? []);
    expect(parts.join("")).toBe("12345678");
  });

  test("nobody runs the job while another does", () => {
    let runner: string | undefined;
    let runs = 0;
    for (const { who, what } of demo.lines) {
      if (what.startsWith("holds the lock")) {
        expect(runner, demo.output()).toBeUndefined();
        runner = who;
        runs++;
      } else if (what.startsWith("part ")) {
        expect(who, demo.output()).toBe(runner);
      } else if (what.startsWith("has finished") || what.startsWith("is dead")) {
        if (who === runner) runner = undefined;
      }
    }
    expect(runs).toBe(3);
  });

  test("it leaves no replica behind, and no colours where nobody sees them", () => {
    const pids = replicaPids(demo.lines);
    expect(pids).toHaveLength(3);
    expect(pids.filter(isRunning)).toEqual([]);
    expect(demo.output()).not.toContain("\u001b[");
  });

  test.concurrent.for(["SIGINT", "SIGKILL"] as const)(
    "%s leaves no replica behind",
    async (signal, { expect, onTestFinished }) => {
      const stopped = startDemo();
      onTestFinished(() => void stopped.process.kill("SIGKILL"));
      await until(() => stopped.lines.some(({ what }) => what.startsWith("part 1")));
      const pids = replicaPids(stopped.lines);
      expect(pids.filter(isRunning)).toHaveLength(3);
      stopped.process.kill(signal);
      await stopped.ended;
      await until(() => !pids.some(isRunning));
    },
  );
});

describe("the ipc store", () => {
  function startClient(store: Store): { child: ChildProcess; nextLine: () => Promise<string> } {
    const child = fork(fileURLToPath(new URL("./ipc-client.ts", import.meta.url)), {
      cwd: root,
      env,
      execArgv: ["--import", "tsx"],
      serialization: "advanced",
      stdio: ["ignore", "pipe", "inherit", "ipc"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    serveStore(store, child);
    const lines = createInterface({ input: child.stdout as Readable })[Symbol.asyncIterator]();
    return { child, nextLine: async () => (await lines.next()).value };
  }

  test("carries errors with their code, and fences as bigint", async () => {
    const { child, nextLine } = startClient(memoryStore());
    expect(await nextLine()).toBe("ready");
    child.send({ ask: "" });
    expect(await nextLine()).toBe('asked for ""');
    expect(await nextLine()).toMatch(/^"": INVALID_ARGUMENT key must be 1 to 512 bytes/);
    child.send({ ask: "report" });
    expect(await nextLine()).toBe('asked for "report"');
    expect(await nextLine()).toBe('"report": held bigint');
  });

  test("a dropped channel rejects what is open and what is asked later with STORE_UNAVAILABLE", async () => {
    const store = memoryStore();
    store.acquire = () => new Promise(() => {});
    const { child, nextLine } = startClient(store);
    expect(await nextLine()).toBe("ready");
    child.send({ ask: "open" });
    expect(await nextLine()).toBe('asked for "open"');
    child.disconnect();
    const closed = "STORE_UNAVAILABLE The channel to the process that keeps the locks is closed.";
    const rest = [await nextLine(), await nextLine(), await nextLine()].sort();
    expect(rest).toEqual([`"later": ${closed}`, `"open": ${closed}`, 'asked for "later"']);
  });
});
