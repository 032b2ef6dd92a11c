import { expect, test } from "vitest";
import { read } from "../../source-tree.ts";

test.each(["map-driver.ts", "sqlite-driver.ts"])(
  "the %s in the docs is the one that the tests run",
  (file) => {
    const page = read("docs/stores/writing-a-store.md");
    expect(page).toContain(`\`\`\`ts\n${read(`examples/driver/${file}`)}\`\`\``);
  },
);
