/** `npm run mutants` takes long, so whether its bugs can still be planted is looked at in every run. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { root } from "../source-tree.ts";
import { mutants } from "./mutants.ts";

test.each(mutants)("there is one place to plant that $name", ({ file, find, replace }) => {
  expect(readFileSync(join(root, file), "utf8").split(find)).toHaveLength(2);
  expect(replace).not.toBe(find);
});

test("no two planted bugs have the same name", () => {
  const names = mutants.map(({ name }) => name);
  expect(names.filter((name, nth) => names.indexOf(name) !== nth)).toEqual([]);
});
