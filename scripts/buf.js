/** Runs buf, which checks the .proto files and makes code of them. It asks nobody: everything that it needs is installed. */
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const bin = join(root, "node_modules", ".bin");

/** The .proto files of the last release, compiled. Clients out there were made from them. */
export const baseline = join(root, "proto", "released.binpb");

/**
 * @param {readonly string[]} args
 * @param {import("node:child_process").SpawnSyncOptions} [options]
 */
export function buf(args, options = {}) {
  const program = createRequire(import.meta.url).resolve("@bufbuild/buf/bin/buf");
  const env = {
    ...process.env,
    PATH: `${bin}${delimiter}${process.env["PATH"]}`,
    BUF_CACHE_DIR: join(tmpdir(), "holdfast-buf"),
  };
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], {
    cwd: root,
    env,
    maxBuffer: 1e8,
    ...options,
  });
  if (status !== 0) throw new Error(`buf ${args.join(" ")} failed:\n${stderr}${stdout}`);
  return stdout;
}

/**
 * Throws where a client that was made from the released files would not understand the present ones any more.
 *
 * @param {string} [folder] where buf.yaml is, and the .proto files that it names
 */
export function checkBreaking(folder = root) {
  buf(["breaking", folder, "--against", baseline]);
}
