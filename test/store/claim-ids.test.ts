import { expect, test } from "vitest";
import { newClaimIds } from "../../src/store/claim-ids.ts";

// More than are made from one pool of random bytes.
const made = Array.from({ length: 1_000 }, newClaimIds);

test("no two claims have the same id or token", () => {
  expect(new Set(made.map(({ id }) => id)).size).toBe(made.length);
  expect(new Set(made.map(({ token }) => token)).size).toBe(made.length);
});

test("a token has nothing of the id, which is shown, and is as long", () => {
  for (const { id, token } of made) {
    expect(token).not.toBe(id);
    expect(token).toMatch(/^[\w-]{12}$/);
  }
});

test("an id is plain text that a command line does not take for an option", () => {
  for (const { id } of made) expect(id).toMatch(/^[A-Za-z][\w-]{11}$/);
});
