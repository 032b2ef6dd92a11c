/** Every example of docs/cli.md does what the page says that it does, one after the other, as a reader would try them. */
import { execFile, execFileSync } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { freePort } from "../engines/redis.ts";
import { read } from "../source-tree.ts";
import { atEnd, binFolder, cleanEnv, temporaryFolder } from "./command.ts";

/** The blocks that show commands and what they print. */
const blocks = [...read("docs/cli.md").matchAll(/^```console\n([\s\S]*?)^```$/gm)].map(
  ([, block]) => block ?? "",
);

const commandsOf = (block: string) =>
  block
    .split("\n")
    .filter((line) => line.startsWith("$ "))
    .map((line) => line.slice(2));

/** Masks the parts that differ each time: fences, times, owners, tokens, durations, versions, and the job lines of the shell. */
function likeness(text: string): string {
  return (
    text
      .replace(/^\[\d+\].*\n/gm, "")
      .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
      .replace(/\b\d{16}\b/g, "FENCE")
      // The ids in the table of ls, after the owner.
      .replace(/^(\S+ +[\w.-]+:\d+:[0-9a-f]{8} +)[\w-]{12} /gm, "$1ID ")
      .replace(/\bhf_[\w-]+/g, "TOKEN")
      .replace(/[\w.-]+:\d+:[0-9a-f]{8}\b/g, "OWNER")
      .replace(/\b\d+(\.\d+)? ?m?s\b/g, "DURATION")
      .replace(/"expiresInMs":\d+/g, '"expiresInMs":DURATION')
      .replace(/\bNode [\d.]+/g, "NODE")
      .replace(/(behind|ahead of) this machine/g, "OFF this machine")
      .replace(/over \d+ heartbeats/g, "over N heartbeats")
      .replace(/127\.0\.0\.1:\d+/g, "ADDRESS")
      .replace(/[ \t]+/g, " ")
      .trimEnd()
  );
}

/** The output of each block. All its waits take `patience` times as long. */
async function printedWith(patience: number): Promise<string[]> {
  const port = await freePort();
  const folder = temporaryFolder();
  const env = cleanEnv({
    PATH: `${binFolder(temporaryFolder())}:${process.env["PATH"]}`,
    HOLDFAST_SERVER: `127.0.0.1:${port}`,
  });
  const adapted = (command: string) =>
    command
      .replace("--port 7420", `--port ${port}`)
      .replace(/\b(sleep|timeout -s INT) ([\d.]+)/g, (_, what, seconds) => `${what} ${patience * seconds}`);
  // All in one shell, because the first block starts the server for the others. What is printed is split by markers.
  const script = blocks
    .map((block) => `${commandsOf(block).map(adapted).join("\n")}\necho "--- end of block"`)
    .join("\n");
  const whole = `set -m\nexec 2>&1\n${script}\nkill %1; wait %1`;
  const pidFile = `${folder}/pid`;
  atEnd(() => execFileSync("sh", ["-c", `kill -9 -$(cat ${pidFile}) 2>/dev/null || :`]));
  const { stdout } = await promisify(execFile)("bash", ["-c", `echo $$ > ${pidFile}\n${whole}`], {
    cwd: folder,
    env,
  });
  return stdout.split("--- end of block\n").slice(0, -1).map(likeness);
}

describe("docs/cli.md", () => {
  test("prints what it says", { timeout: 300_000 }, async () => {
    const promised = blocks.map((block) => likeness(block.replace(/^\$ .*\n/gm, "")));
    // Commands start side by side, and a busy machine may take a second for one of them: the next round gives them more time.
    let printed = await printedWith(1);
    for (let patience = 2; patience <= 4 && printed.join() !== promised.join(); patience *= 2)
      printed = await printedWith(patience);
    expect(printed).toEqual(promised);
  });

  test("shows an exit code for everything that can happen", () => {
    const page = read("docs/cli.md");
    for (const code of [64, 69, 70, 75, 77, 79, 126, 127]) expect(page).toContain(`| ${code} | `);
  });
});
