import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type ClaimRequest, memoryStore } from "holdfast";
import { expect, test } from "vitest";

const claim: ClaimRequest = {
  key: "",
  id: "id",
  token: "token",
  weight: 1,
  limit: 1,
  priority: 0,
  ttlMs: 60_000,
  wait: false,
  owner: "",
  info: "",
  application: "",
};

test("memory: a listing that is not gone on with costs no memory, and can be gone on with", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const store = memoryStore();
  for (const key of ["a", "b"]) await store.acquire({ ...claim, key });
  const { cursor } = await store.look({ prefix: "", limit: 1, maxClaims: 0 });
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let cycle = 0; cycle < 100_000; cycle++) {
    const key = `key ${cycle}`;
    await store.acquire({ ...claim, key });
    await store.release([{ key, id: "id", token: "token" }]);
  }
  collect();
  // It was 7.6 MB.
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(3_000_000);
  const { keys } = await store.look({ prefix: "", limit: 1, maxClaims: 0, cursor: cursor! });
  expect(keys.map(({ key }) => key)).toEqual(["b"]);
});
