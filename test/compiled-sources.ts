/**
 * Lets tests load the compiled form of a source, natively, instead of having vitest transform and evaluate each module once more for
 * each file of tests. docs/decisions/0003-test-runner-and-tools.md has the figures.
 */
import { dirname, join, resolve, sep } from "node:path";
import type { Plugin } from "vitest/config";
import { compiledForm } from "./programs.ts";
import { filesBelow, read, root } from "./source-tree.ts";

const sources = join(root, "src") + sep;

/** Tests that put something else in the place of a module, which vitest can do only where it loads all that imports it. */
export function replacingTests(): string[] {
  return filesBelow("test").filter(
    (path) => path.endsWith(".test.ts") && /\bvi\.(mock|doMock)\(/.test(read(path)),
  );
}

export function compiledSources(): Plugin {
  let isWatching = false;
  return {
    name: "holdfast:compiled-sources",
    enforce: "pre",
    configureVitest({ vitest }) {
      // Sources that are edited between two runs are newer than the compiled ones.
      isWatching = vitest.config.watch;
    },
    resolveId(source, importer) {
      if (isWatching || importer === undefined) return undefined;
      const path = source.startsWith(".") ? resolve(dirname(importer), source) : source;
      return path.startsWith(sources) ? compiledForm(path) : undefined;
    },
  };
}
