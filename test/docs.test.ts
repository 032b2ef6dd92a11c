/**
 * Keeps the documentation true: every `ts` block is type-checked and run, and every relative link leads somewhere.
 *
 * A comment right above a block says what is not done with it, and why: `<!-- not run: needs a real outage -->`.
 */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, posix } from "node:path";
import { format, promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { documents, filesBelow, read, root } from "./source-tree.ts";

interface Snippet {
  readonly name: string;
  /** As seen from the folder of this run. */
  readonly file: string;
  /** Whether it is one of `examples/` as a whole, which may import others beside it. It is checked and run where it is. */
  readonly isExample: boolean;
  readonly code: string;
  readonly runs: boolean;
}

/** Ignored by git, inside the repository so that `holdfast` resolves as it does for the tests, and this run's own. */
const folder = `.snippets/${process.pid}`;

/** Paths by text. */
const examples = new Map(
  filesBelow("examples")
    .filter((path) => path.endsWith(".ts"))
    .map((path) => [read(path), path]),
);
const snippets = documents().flatMap(snippetsOf);

beforeAll(() => {
  mkdirSync(join(root, folder), { recursive: true });
  for (const { file, code, isExample } of snippets) {
    if (!isExample) writeFileSync(join(root, folder, file), code);
  }
  const files = snippets.map(({ file }) => file);
  const compilerOptions = { noUnusedLocals: false };
  // What the other one includes has been checked already.
  const config = { extends: "../../tsconfig.json", compilerOptions, include: [], files };
  writeFileSync(join(root, folder, "tsconfig.json"), JSON.stringify(config));
});

afterAll(() => rmSync(join(root, folder), { recursive: true, force: true }));

describe("snippets", () => {
  test("exist in the README and in the guide", () => {
    const documented = snippets.map(({ name }) => name.split(":")[0]);
    expect(documented).toContain("README.md");
    expect(documented).toContain("docs/guide.md");
  });

  test("type-check", async () => {
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    const run = promisify(execFile)(process.execPath, [tsc, "--noEmit", "-p", folder], { cwd: root });
    // File and line of an error are those of the document: see snippetsOf.
    await run.catch((error: { stdout: string }) => expect.fail(error.stdout));
  }, 180_000);

  test.each(snippets.filter(({ runs }) => runs))("$name runs, and prints what it says", async (snippet) => {
    const log = vi.spyOn(console, "log").mockImplementation(() => {});
    onTestFinished(() => log.mockRestore());
    await import(/* @vite-ignore */ join(root, folder, snippet.file));
    const printed = log.mock.calls.map((values) => format(...values));
    for (const expected of promisedOutput(snippet.code)) {
      const found = printed.findIndex((line) => line.startsWith(expected));
      expect(found, `"${expected}" among what is left: ${printed.join(" · ")}`).not.toBe(-1);
      printed.splice(0, found + 1);
    }
  });
});

describe("links", () => {
  test.each(documents())("%s links to what exists", (path) => {
    const prose = read(path).replace(/^```[\s\S]*?^```/gm, "");
    const links = [...prose.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link ?? "");
    const broken = links.filter((link) => !/^https?:/.test(link) && !leadsSomewhere(path, link));
    expect(broken).toEqual([]);
  });
});

/** The `ts` blocks of a document. Each keeps its line numbers, so that an error tells where it is in the document. */
function snippetsOf(path: string): Snippet[] {
  const lines = read(path).split("\n");
  return lines.flatMap((line, index) => {
    if (line !== "```ts") return [];
    const block = lines.slice(index + 1, lines.indexOf("```", index));
    const code = [...lines.slice(0, index + 1).map(() => ""), ...block, "export {};", ""].join("\n");
    const name = `${path}:${index + 2}`;
    const example = examples.get(`${block.join("\n")}\n`);
    const file = example === undefined ? `${path.replace(/\W+/g, "-")}-${index + 2}.ts` : `../../${example}`;
    return [{ name, file, isExample: example !== undefined, code, runs: !isMarked(lines, index) }];
  });
}

/** What comments behind a `console.log` say that it prints, where that is a plain value or an error's code. */
function promisedOutput(code: string): string[] {
  const pattern = /console\.log\(.*\/\/ (true|false|null|\d+|[A-Z]+_[A-Z_]+)\b/g;
  return [...code.matchAll(pattern)].map(([, value]) => value ?? "");
}

function isMarked(lines: readonly string[], index: number): boolean {
  const above = lines.slice(0, index).findLast((line) => line !== "") ?? "";
  return /^<!-- not run: .+ -->$/.test(above);
}

function leadsSomewhere(from: string, link: string): boolean {
  const [file = "", anchor] = link.split("#");
  const target = file === "" ? from : posix.join(posix.dirname(from), file);
  if (!existsSync(join(root, target))) return false;
  return anchor === undefined || anchorsOf(read(target)).includes(anchor);
}

/** The anchors that a document's headings make, as code hosts derive them. */
function anchorsOf(text: string): string[] {
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
}
