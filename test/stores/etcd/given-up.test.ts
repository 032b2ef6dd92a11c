/** Changes that nobody waits for any more, and that are made all the same, or not. */
import { expect, test } from "vitest";
import { attempt } from "../cas/scene.ts";
import { createScene, type Journey } from "./scene.ts";

/** Writes the key of a lease anew. */
const isSettling = (what: string) =>
  what.includes('"request_put":{"key":"holdfast/a/') && what.includes('"Greater"');
const writes = (what: string, key: string) => what.includes(`"request_put":{"key":"holdfast/r/${key}"`);

test("etcd: a change that was given up leaves no claim behind, also where what came before it has taken most of the time", async () => {
  const journey: Journey = (what, from) => {
    if (from === "server") return 1;
    if (writes(what, "doubt")) return Number.POSITIVE_INFINITY;
    if (isSettling(what)) return 600;
    return writes(what, "k") ? 500 : 1;
  };
  let met: Journey = journey;
  const { store, soon, pass, recordOf } = createScene((what, from) => met(what, from));
  // There is a lease by now, and a change of which nobody knows whether it will be made.
  expect(await soon(store.acquire(attempt("first", "a")))).toMatchObject({ state: "held" });
  expect(await soon(store.acquire(attempt("doubt", "a")))).toMatchObject({ code: "STORE_UNAVAILABLE" });

  const request = attempt("k", "a");
  expect(await soon(store.acquire(request))).toMatchObject({ code: "STORE_UNAVAILABLE" });
  // Everything is quick again, but for what is on its way.
  met = () => 1;
  await soon(store.release([request]));
  await pass(1_000);
  // The process goes on, so its lease lives on.
  expect(await soon(store.acquire(attempt("last", "a")))).toMatchObject({ state: "held" });
  expect(recordOf("k")?.held ?? []).toEqual([]);
});

test("etcd: what is sent again after a refusal has no more time than the first had", async () => {
  let met: Journey = () => 1;
  const { store, another, soon, pass, recordOf } = createScene((what, from) => met(what, from));
  const requests = ["a", "b"].map((key) => attempt(key, "mine"));
  // Both records are known, so that they are changed jointly; and one of them is not what it was.
  for (const request of requests) {
    await soon(store.acquire(request));
    await soon(store.release([request]));
  }
  expect(await soon(another().store.acquire(attempt("b", "theirs", { limit: 2 })))).toMatchObject({
    state: "held",
  });
  // The joint change is refused late, and what follows it is made when it has been given up.
  let sent = 0;
  met = (what, from) => (from === "process" && writes(what, "a") ? ([600, 500][sent++] ?? 1) : 1);
  const asked = requests.map((request) => store.acquire(request).catch((error: Error) => error));
  expect(await soon(asked[0] as Promise<unknown>)).toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(sent).toBe(2);
  met = () => 1;
  await soon(store.release(requests));
  await pass(1_000);
  expect(await soon(store.acquire(attempt("last", "mine")))).toMatchObject({ state: "held" });
  expect(recordOf("a")?.held ?? []).toEqual([]);
});
