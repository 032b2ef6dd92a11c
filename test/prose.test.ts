/** Keeps the prose of comments and pages plain: each pattern may match a bounded share of the sentences. */
import { describe, expect, test } from "vitest";
import { patterns, sentencesOfCode, sentencesOfPage } from "./prose.ts";
import { filesBelow } from "./source-tree.ts";

const files = filesBelow("");
const code = files.filter((path) => /^(src|test)\/.*\.[jt]s$/.test(path) && !path.includes("/gen/"));
const pages = files.filter((path) => /^(docs\/.*|README|CHANGELOG|CONTRIBUTING)\.md$/.test(path));
const sentences = { code: code.flatMap(sentencesOfCode), pages: pages.flatMap(sentencesOfPage) };

describe.each(["code", "pages"] as const)("few sentences of %s match", (kind) => {
  test.each(Object.entries(patterns))("%s", (_, { isIn, most }) => {
    const found = sentences[kind].filter(isIn);
    const percent = (found.length / sentences[kind].length) * 100;
    expect(percent, `such as:\n${found.slice(-10).join("\n")}`).toBeLessThanOrEqual(most[kind]);
  });
});
