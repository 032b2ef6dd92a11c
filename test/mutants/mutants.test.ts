import { describe, expect, test } from "vitest";
import { read } from "../source-tree.ts";
import { mutants } from "./mutants.ts";

describe("mutants", () => {
  test.each(mutants)("there is one place to plant: $name", ({ file, find, replace }) => {
    expect(read(file).split(find)).toHaveLength(2);
    expect(replace).not.toBe(find);
  });
});
