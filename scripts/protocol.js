/**
 * `npm run protocol`: writes src/protocol/gen from the .proto files. With `--check` it writes nothing, and fails if a file is out
 * of date or malformed. With `--release` it also makes the files the baseline that later changes must not break.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { baseline, buf, checkBreaking } from "./buf.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const generated = join(root, "src", "protocol", "gen");

/** Every file below a folder, with its text. */
function filesBelow(folder) {
  const paths = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  return new Map(
    paths.map((entry) => {
      const path = join(entry.parentPath ?? entry.path, entry.name);
      return [relative(folder, path), readFileSync(path, "utf8")];
    }),
  );
}

function differences(wanted, found) {
  const names = new Set([...wanted.keys(), ...found.keys()]);
  return [...names].filter((name) => wanted.get(name) !== found.get(name));
}

function check() {
  const problems = [];
  const folder = mkdtempSync(join(tmpdir(), "holdfast-protocol-"));
  try {
    buf(["lint"]);
    buf(["format", "--diff", "--exit-code"]);
    checkBreaking();
    buf(["generate", "-o", folder]);
    const fresh = filesBelow(join(folder, "src", "protocol", "gen"));
    for (const name of differences(fresh, filesBelow(generated)))
      problems.push(`src/protocol/gen/${name} is out of date.`);
  } finally {
    rmSync(folder, { recursive: true });
  }
  return problems;
}

if (process.argv.includes("--check")) {
  const problems = check();
  if (problems.length > 0) console.error(`${problems.join("\n")}\nRun npm run protocol.`);
  process.exit(problems.length > 0 ? 1 : 0);
}
rmSync(generated, { recursive: true, force: true });
buf(["format", "-w"]);
buf(["generate"]);
checkBreaking();
if (process.argv.includes("--release")) buf(["build", "--exclude-source-info", "-o", baseline]);
