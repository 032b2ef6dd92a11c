/** Leases whose grant was not heard of, and that are asked for again. */
import { HoldfastError } from "holdfast";
import { describe, expect, test } from "vitest";
import { attempt } from "../cas/scene.ts";
import { createScene } from "./scene.ts";

/** The reply to the first grant is lost. Requests of a kind may take longer than others. */
function createProcess(slow: Readonly<Record<string, number>> = {}) {
  let isFirst = true;
  const { store, soon, leftMs } = createScene((what, from) => {
    if (from === "process") return slow[what] ?? 1;
    if (!what.startsWith("grant") || !isFirst) return 1;
    isFirst = false;
    return Number.POSITIVE_INFINITY;
  });
  const acquire = (ttlMs: number) => soon(store.acquire(attempt("k", "a", { ttlMs })));
  return { acquire, leftMs };
}

describe("etcd: a lease that is found again", () => {
  test("promises no more than what is left of it since it was granted", async () => {
    const { acquire, leftMs } = createProcess();
    expect(await acquire(4_000)).toBeInstanceOf(HoldfastError);
    const answer = await acquire(4_000);
    expect(answer).toMatchObject({ state: "held" });
    // Granted 900 ms ago, and since then nobody has shown a sign of life.
    expect(leftMs()).toBeLessThan(3_200);
    expect((answer as { expiresInMs: number }).expiresInMs).toBeLessThanOrEqual(leftMs() ?? 0);
  });

  // The lease ends between the second grant, which is refused, and the look at it.
  test("is an outage where it ends before it is looked at, and the next call has another", async () => {
    const { acquire } = createProcess({ "time to live": 800 });
    expect(await acquire(1_000)).toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await acquire(1_000)).toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("has ended"),
    });
    expect(await acquire(1_000)).toMatchObject({ state: "held" });
  });
});
