import { memoryStore } from "holdfast";
import { expect, test } from "vitest";

test("memory: the last page of a listing can be asked for again", async () => {
  const store = memoryStore();
  for (const key of ["a", "b", "c"]) {
    await store.acquire({
      key,
      id: "id",
      token: "token",
      weight: 1,
      limit: 1,
      priority: 0,
      ttlMs: 1_000,
      wait: false,
      owner: "",
      info: "",
      application: "",
    });
  }
  const { cursor } = await store.look({ prefix: "", limit: 2, maxClaims: 0 });
  const last = await store.look({ prefix: "", limit: 2, maxClaims: 0, cursor: cursor! });
  expect(last.keys.map(({ key }) => key)).toEqual(["c"]);
  expect(await store.look({ prefix: "", limit: 2, maxClaims: 0, cursor: cursor! })).toEqual(last);
});
