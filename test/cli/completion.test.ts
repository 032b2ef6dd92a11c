/** Completion, as a shell does it. */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { allCommands, buildProgram, processOutput, treeOf } from "../../src/cli/index.ts";
import { read } from "../source-tree.ts";
import { buildCommand, run, temporaryFolder } from "./command.ts";

beforeAll(buildCommand, 120_000);

async function scriptFor(shell: string): Promise<string> {
  const path = join(temporaryFolder(), shell);
  writeFileSync(path, (await run(["completion", shell])).stdout);
  return path;
}

describe("bash", () => {
  /** What bash offers when the tab key is pressed after these words. */
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
    expect(await offers(["serve", "--max-c"])).toEqual(["--max-connections", "--max-claims"]);
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

describe.each(["bash", "zsh", "fish"])("%s", (shell) => {
  const installed = (() => {
    try {
      execFileSync(shell, ["--version"], { stdio: "ignore" });
      return true;
    } catch {
      return false;
    }
  })();

  test("has every command and option", async () => {
    const { stdout } = await run(["completion", shell]);
    const tree = treeOf(await buildProgram(processOutput()));
    const words = allCommands(tree).flatMap(({ path, options }) => [
      ...path.split(" "),
      ...options.map(({ long }) => (shell === "fish" ? `-l ${long.slice(2)}` : long)),
    ]);
    expect(words.filter((word) => !stdout.includes(word))).toEqual([]);
  });

  test.skipIf(!installed)("understands its script", async () => {
    execFileSync(shell, ["-n", await scriptFor(shell)]);
  });
});

describe("help", () => {
  test("is there for every command, with an example", async () => {
    const tree = treeOf(await buildProgram(processOutput()));
    for (const { path, commands } of allCommands(tree)) {
      const { code, stdout, stderr } = await run([...path.split(" ").filter(Boolean), "--help"]);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      if (commands.length === 0) expect(stdout).toMatch(/^Examples:\n {2}\S*.*holdfast /m);
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

  test("docs/cli.md names every command, and every option but the server's", () => {
    const page = read("docs/cli.md");
    return buildProgram(processOutput()).then((program) => {
      const missing = allCommands(treeOf(program)).flatMap(({ path, options }) => [
        ...(page.includes(`holdfast ${path}`.trim()) ? [] : [path]),
        ...options
          .filter(({ long }) => path !== "serve" && !page.includes(`\`${long}`))
          .map(({ long }) => `${path} ${long}`),
      ]);
      expect(missing).toEqual([]);
    });
  });
});
