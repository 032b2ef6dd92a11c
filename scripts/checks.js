/** The fast checks, which `npm run check` and `npm test` share. */
import { runNode, runTool, step } from "./steps.js";

export function checkTypes() {
  return step("types (tsc)", () => runTool("typescript", "bin/tsc", ["--noEmit", "-p", "tsconfig.json"]));
}

export function checkStyle() {
  return step("lint and format (biome)", () => runTool("@biomejs/biome", "bin/biome", ["ci", "."]));
}

/** The .proto files: lint, format, what would break clients, and what is made from them. */
export function checkProtocol() {
  return step("protocol (buf)", () => runNode(["scripts/protocol.js", "--check"]));
}

/** Runs vitest with arguments of its own. Resolves to its exit code. */
export function runVitest(args) {
  return runTool("vitest", "vitest.mjs", ["run", ...args]);
}
