/** Processes that have died at once, however many they were, are no obstacle to whoever comes after them. */
import { describe, expect, test } from "vitest";
import { attempt, wait } from "../cas/scene.ts";
import { createScene } from "./scene.ts";

/** As many as one change can drop, one more, and several changes full. */
describe.each([8, 9, 40])("etcd: %i processes that die at once", (dead) => {
  /** So many processes that have asked for the key, and are gone since, with their leases. */
  async function afterTheirEnd(weight: number, limit: number) {
    const scene = createScene(() => 1);
    for (let nth = 0; nth < dead; nth++) {
      const { store, die } = scene.another();
      const request = wait("k", `dead-${nth}`, { weight, limit });
      expect(await scene.soon(store.acquire(request))).toMatchObject({
        state: nth * weight < limit ? "held" : "waiting",
      });
      die();
    }
    await scene.pass(60_000);
    return scene;
  }

  // A change compares at most eight ended leases. Nine processes die at once: the ninth must not be compared as alive.
  test("while one holds and the others wait leave the lock to the next who tries", async () => {
    const { store, soon, recordOf } = await afterTheirEnd(1, 1);
    expect(await soon(store.acquire(attempt("k", "next")))).toMatchObject({ state: "held" });
    expect(recordOf("k")?.queue).toHaveLength(0);
  });

  test("while all hold a semaphore leave it to the next who wants all of it", async () => {
    const { store, soon } = await afterTheirEnd(1, dead);
    const all = attempt("k", "next", { weight: dead, limit: dead });
    expect(await soon(store.acquire(all))).toMatchObject({ state: "held" });
  });

  test("leave nothing that cannot be released by force", async () => {
    const { store, soon } = await afterTheirEnd(1, 1);
    // Whether it still was there hangs on what is known by then.
    expect(await soon(store.release([{ key: "k", id: "dead-0" }]))).toHaveLength(1);
    expect(await soon(store.acquire(attempt("k", "next")))).toMatchObject({ state: "held" });
  });
});
