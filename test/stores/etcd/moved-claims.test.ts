/** Claims that are hung on another lease while somebody counts on them. */
import { expect, test } from "vitest";
import { attempt } from "../cas/scene.ts";
import { createScene } from "./scene.ts";

test("etcd: a claim is not hung on a lease that may end before what was promised, whatever a former leader says", async () => {
  let losesReplies = false;
  const { store, soon, pass, nowMs, elect, recordOf, leftMs } = createScene((what, from) =>
    from === "server" && losesReplies && what.includes("holdfast/r/k") ? Number.POSITIVE_INFINITY : 1,
  );
  // From now on, the lease that this hangs on is renewed for show.
  expect(await soon(store.acquire(attempt("other", "a", { ttlMs: 2_000 })))).toMatchObject({ state: "held" });
  elect();
  await pass(1_500);
  // Only a leader grants a lease, so this one is certain.
  const request = attempt("k", "a", { ttlMs: 1_000 });
  const askedMs = nowMs();
  const answer = await soon(store.acquire(request));
  expect(answer).toMatchObject({ state: "held" });
  const { expiresInMs } = answer as { expiresInMs: number };
  expect(expiresInMs).toBeGreaterThan(900);
  // More than its lease can keep. Whoever asks never hears of it, and goes by the promise before.
  losesReplies = true;
  const renewed = await soon(store.renew([{ ...request, ttlMs: 1_500 }]));
  expect([renewed].flat()[0]).toMatchObject({ code: "STORE_UNAVAILABLE" });
  const promisedMs = askedMs + expiresInMs - nowMs();
  expect(promisedMs).toBeGreaterThan(50);
  expect(leftMs(recordOf("k")?.held[0]?.etcdLease) ?? 0).toBeGreaterThanOrEqual(promisedMs);
});
