import { expect, test } from "vitest";
import { newClaimIds } from "../../src/core/claim-ids.ts";

// More than are made from one pool of random bytes.
const made = Array.from({ length: 1_000 }, newClaimIds);

test("no two claims have the same id or token", () => {
  expect(new Set(made.map(({ id }) => id)).size).toBe(made.length);
  expect(new Set(made.map(({ token }) => token)).size).toBe(made.length);
});

test("a token begins with its id, and has as much again that is not shown", () => {
  for (const { id, token } of made) {
    expect(token.startsWith(id)).toBe(true);
    expect(token.length).toBe(2 * id.length);
  }
});

test("an id is plain text that a command line does not take for an option", () => {
  for (const { id } of made) expect(id).toMatch(/^[A-Za-z][\w-]{11}$/);
});
