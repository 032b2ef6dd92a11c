import { expect, test } from "vitest";
import { read } from "../../source-tree.ts";

test("the driver in the docs is the one that the tests run", () => {
  const page = read("docs/stores/writing-a-store.md");
  expect(page).toContain(`\`\`\`ts\n${read("examples/driver/map-driver.ts")}\`\`\``);
});
