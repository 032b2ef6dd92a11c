/** Keeps the prose of comments and pages plain: each pattern may match a bounded share of the sentences. */
import { expect, test } from "vitest";
import { patterns, sentencesOfCode, sentencesOfPage } from "./prose.ts";
import { filesBelow } from "./source-tree.ts";

const files = filesBelow("");
const code = files.filter((path) => /^(src|test)\/.*\.[jt]s$/.test(path) && !path.includes("/gen/"));
const pages = files.filter((path) => /^(docs\/.*|README|CHANGELOG|CONTRIBUTING)\.md$/.test(path));
const sentences = [...code.flatMap(sentencesOfCode), ...pages.flatMap(sentencesOfPage)];

test.each(Object.entries(patterns))("few sentences match: %s", (_, { isIn, most }) => {
  const found = sentences.filter(isIn);
  const percent = (found.length / sentences.length) * 100;
  expect(percent, `such as:\n${found.slice(-10).join("\n")}`).toBeLessThanOrEqual(most);
});
