/** `npm run engines`: the tests that the usual run leaves out. */
import { defineConfig } from "vitest/config";
import usual, { engineTests } from "../../vitest.config.ts";

export default defineConfig({
  ...usual,
  root: new URL("../..", import.meta.url).pathname,
  test: { ...usual.test, include: engineTests, exclude: [] },
});
