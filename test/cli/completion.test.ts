/** Completion, as a shell does it. */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { allCommands, buildProgram, processOutput, treeOf } from "../../src/cli/index.ts";
import { read } from "../source-tree.ts";
import { run, temporaryFolder } from "./command.ts";

const output = processOutput();

/** The scripts as the command prints them, each once. */
const scripts = new Map<string, string>();
async function scriptFor(shell: string): Promise<string> {
  const text = scripts.get(shell) ?? (await run(["completion", shell])).stdout;
  scripts.set(shell, text);
  const path = join(temporaryFolder(), shell);
  writeFileSync(path, text);
  return path;
}

/** The help text, without a process. */
async function helpOf(path: string): Promise<string> {
  let command = await buildProgram(output);
  for (const word of path.split(" ").filter(Boolean)) {
    command = command.commands.find((child) => child.name() === word) ?? expect.fail(path);
  }
  let text = "";
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
  });
  command.outputHelp();
  return text;
}

function isInstalled(shell: string): boolean {
  try {
    execFileSync(shell, ["--version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

describe("bash", () => {
  /** The offers of bash for the tab key after these words. */
  async function offers(words: readonly string[]): Promise<string[]> {
    const script = `
      source "$1"; shift
      COMP_WORDS=(holdfast "$@"); COMP_CWORD=$#
      _holdfast
      printf '%s\\n' "\${COMPREPLY[@]}"`;
    const path = await scriptFor("bash");
    const options = { encoding: "utf8", cwd: temporaryFolder() } as const;
    writeFileSync(join(options.cwd, "tokens.json"), "");
    const said = execFileSync("bash", ["-c", script, "bash", path, ...words], options);
    return said.trim().split("\n");
  }

  test("offers the commands, and those that begin alike", async () => {
    expect(await offers([""])).toEqual(
      expect.arrayContaining(["run", "serve", "ls", "inspect", "--version"]),
    );
    expect(await offers(["in"])).toEqual(["inspect"]);
  });

  test("offers the options of a command, and the commands within it", async () => {
    expect(await offers(["run", "k", "--max"])).toEqual(["--max-hold"]);
    expect(await offers(["serve", "--max-c"])).toEqual(["--max-connections", "--max-calls", "--max-claims"]);
    expect(await offers(["token", "n"])).toEqual(["new"]);
    expect(await offers(["token", "new", "--gr"])).toEqual(["--grant"]);
    expect(await offers(["completion", ""])).toEqual(expect.arrayContaining(["bash", "zsh", "fish"]));
  });

  test("offers the values of an option, files where it takes one, and commands after --", async () => {
    expect(await offers(["serve", "--log-level", "s"])).toEqual(["silent"]);
    expect(await offers(["serve", "--tokens", "tok"])).toEqual(["tokens.json"]);
    expect(await offers(["run", "k", "--ttl", ""])).toEqual([""]);
    expect(await offers(["run", "k", "--", "tru"])).toContain("true");
  });
});

describe.skipIf(!isInstalled("fish"))("fish, asked", () => {
  test("offers commands, options and their values", async () => {
    const path = await scriptFor("fish");
    const offers = (line: string) =>
      execFileSync("fish", ["-c", 'source $argv[1]; complete -C "$argv[2]"', path, line], {
        encoding: "utf8",
        cwd: temporaryFolder(),
      })
        .trim()
        .split("\n")
        .map((offer) => offer.split("\t")[0]);
    expect(offers("holdfast ")).toEqual(expect.arrayContaining(["run", "serve", "ls", "inspect"]));
    expect(offers("holdfast in")).toEqual(["inspect"]);
    expect(offers("holdfast run k --max")).toEqual(["--max-hold"]);
    expect(offers("holdfast token n")).toEqual(["new"]);
    expect(offers("holdfast serve --log-level s")).toEqual(["silent"]);
  });
});

describe.each(["bash", "zsh", "fish"])("%s", (shell) => {
  test("has every command and option", async () => {
    const script = readFileSync(await scriptFor(shell), "utf8");
    const tree = treeOf(await buildProgram(output));
    const words = allCommands(tree).flatMap(({ path, options }) => [
      ...path.split(" "),
      ...options.map(({ long }) => (shell === "fish" ? `-l ${long.slice(2)}` : long)),
    ]);
    expect(words.filter((word) => !script.includes(word))).toEqual([]);
  });

  test.skipIf(!isInstalled(shell))("understands its script", async () => {
    execFileSync(shell, ["-n", await scriptFor(shell)]);
  });
});

describe("help", () => {
  test("is there for every command, with an example", async () => {
    const tree = treeOf(await buildProgram(output));
    for (const { path, commands } of allCommands(tree)) {
      if (commands.length === 0) expect(await helpOf(path)).toMatch(/^Examples:\n {2}\S*.*holdfast /m);
    }
    const asked = await Promise.all([run(["run", "--help"]), run(["help", "run"])]);
    for (const { code, stdout, stderr } of asked) {
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout).toMatch(/^Usage: holdfast run <key> /);
    }
  });

  test("is shown on the standard error when there is no command", async () => {
    const ended = await run([]);
    expect(ended).toMatchObject({ code: 64, stdout: "" });
    expect(ended.stderr).toMatch(/^Usage: holdfast/);
  });

  test("--version is that of the package", async () => {
    const { version } = JSON.parse(read("package.json")) as { version: string };
    expect(await run(["--version"])).toMatchObject({ code: 0, stdout: `${version}\n` });
  });

  test("docs/cli.md names every command, and every option but the server's", async () => {
    const page = read("docs/cli.md");
    const missing = allCommands(treeOf(await buildProgram(output))).flatMap(({ path, options }) => [
      ...(page.includes(`holdfast ${path}`.trim()) ? [] : [path]),
      ...options
        .filter(({ long }) => path !== "serve" && !page.includes(`\`${long}`))
        .map(({ long }) => `${path} ${long}`),
    ]);
    expect(missing).toEqual([]);
  });
});
