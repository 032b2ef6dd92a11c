/**
 * Lets tests load the compiled form of a source, natively, instead of having vitest transform and evaluate each module once more for
 * each file of tests: that took a quarter of the processor time of all tests. docs/decisions/0003-test-runner-and-tools.md has the figures.
 */
import { dirname, join, resolve, sep } from "node:path";
import type { Plugin } from "vitest/config";
import { compiledForm } from "./programs.ts";
import { root } from "./source-tree.ts";

const sources = join(root, "src") + sep;

export function compiledSources(): Plugin {
  let isWatching = false;
  return {
    name: "holdfast:compiled-sources",
    enforce: "pre",
    configureVitest({ vitest }) {
      // What was compiled before the first run is not what somebody edits between two.
      isWatching = vitest.config.watch;
    },
    resolveId(source, importer) {
      if (isWatching || importer === undefined) return undefined;
      const path = source.startsWith(".") ? resolve(dirname(importer), source) : source;
      return path.startsWith(sources) ? compiledForm(path) : undefined;
    },
  };
}
