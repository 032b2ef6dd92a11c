/**
 * `npm run protocol`: makes what follows from the .proto files, the code in src/protocol/gen and the reference in
 * docs/protocol.md. With `--check` it writes nothing, and fails where something is out of date or not as it should be. With
 * `--release` it also takes the files as they are for what clients have from now on, which no later change may break.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { baseline, buf, checkBreaking } from "./buf.js";
import { referenceOf } from "./protocol-reference.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const generated = join(root, "src", "protocol", "gen");
const page = join(root, "docs", "protocol.md");
const MARKER = "<!-- From here on written by npm run protocol. -->";

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

/** The page with the reference as it should be. */
function pageText() {
  const image = buf(["build", "-o", "-", "--as-file-descriptor-set"], { encoding: "buffer" });
  const set = fromBinary(FileDescriptorSetSchema, image);
  const [written = ""] = readFileSync(page, "utf8").split(MARKER);
  return `${written}${MARKER}\n\n${referenceOf(createFileRegistry(set), set)}`;
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
    if (pageText() !== readFileSync(page, "utf8"))
      problems.push("The reference in docs/protocol.md is out of date.");
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
writeFileSync(page, pageText());
checkBreaking();
if (process.argv.includes("--release")) buf(["build", "--exclude-source-info", "-o", baseline]);
