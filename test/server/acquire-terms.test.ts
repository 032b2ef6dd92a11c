import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { locks as wire } from "../../src/protocol/index.ts";
import { termsOf, termsOfMany } from "../../src/server/acquire-terms.ts";
import { resolveLimits } from "../../src/server/limits.ts";

const limits = resolveLimits({});

describe("the terms of a call that names none", () => {
  const request = create(wire.AcquireRequestSchema, { key: "k" });

  test("are an hour of waiting and a lease of 30 s, for one key and for many", () => {
    const expected = { lock: { ttlMs: 30_000 }, acquire: { waitMs: 3_600_000, priority: 0 } };
    expect(termsOf(request, limits)).toMatchObject(expected);
    const terms = create(wire.AcquireRequestSchema);
    const many = create(wire.AcquireManyRequestSchema, { keys: [{ key: "a" }, { key: "b" }], terms });
    expect(termsOfMany(many, limits)).toMatchObject(expected);
  });

  test("are what the server allows, where that is less", () => {
    const strict = resolveLimits({ maxWaitMs: 1_000, maxTtlMs: 2_000 });
    expect(termsOf(request, strict)).toMatchObject({ lock: { ttlMs: 2_000 }, acquire: { waitMs: 1_000 } });
  });
});

test("a wait of 0 is a try, and not the default", () => {
  const request = create(wire.AcquireRequestSchema, { key: "k", maxWaitMs: 0 });
  expect(termsOf(request, limits).acquire.waitMs).toBe(0);
});
