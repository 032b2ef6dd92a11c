/** The tables of the page about drivers leave nothing out. */
import { expect, test } from "vitest";
import { read } from "../../source-tree.ts";

const page = read("docs/stores/writing-a-store.md");
const driver = read("src/stores/cas/driver.ts");

/** The names in the first cells of tables, as in "| `keepUntilMs`, `idle` | … |". */
const listed = [...page.matchAll(/^\| (`[^|]*) \|/gm)].flatMap(([, cell = ""]) =>
  [...cell.matchAll(/`(\w+)/g)].map(([, name]) => name),
);

test.each(["CasDriver", "SwapBatch", "Change"])("a table in the docs has every member of %s", (type) => {
  const members = [...bodyOf(`interface ${type} {`, "\n}").matchAll(/^ {2}(?:readonly )?(\w+)\??[:(]/gm)];
  const names = members.map(([, name]) => name);
  expect(names.length).toBeGreaterThan(3);
  expect(names.filter((name) => !listed.includes(name))).toEqual([]);
});

test("a table in the docs has every state of a ChangeResult", () => {
  const states = [...bodyOf("type ChangeResult =", ";\n\n").matchAll(/state: "(\w+)"/g)].map(
    ([, state]) => state,
  );
  expect(states.length).toBeGreaterThan(3);
  expect(states.filter((state) => !listed.includes(state))).toEqual([]);
});

function bodyOf(start: string, end: string): string {
  const from = driver.indexOf(start);
  return driver.slice(from, driver.indexOf(end, from));
}
