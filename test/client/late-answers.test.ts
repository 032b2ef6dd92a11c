import { expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

/**
 * The client's first request is overtaken by its repetition, and granted. Its answer is held back until the client has been
 * told that the claim is gone, and has joined the queue again, behind the next holder.
 */
test("an answer from before a claim was gone does not make the one after it held", async () => {
  const scene = new Scene();
  const rival = scene.rival();
  const first = await rival.mutex("k").acquire();
  scene.faults = ({ verb, count }) => {
    if (verb === "push") return { lose: "request" };
    return verb === "acquire" && count === 1 ? { beforeMs: 600, afterMs: 1_000 } : undefined;
  };
  const acquiring = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire({ id: "mine" }));
  await scene.clock.advance(550);
  expect((await scene.status("k")).waiting).toMatchObject([{ id: "mine" }]);
  await first.release();
  await scene.clock.advance(60);
  expect((await scene.status("k")).held).toMatchObject([{ id: "mine" }]);

  expect(await rival.forceRelease("k", "mine")).toBe(true);
  const next = await rival.mutex("k", { ttlMs: TTL_MS }).acquire();
  await scene.clock.advance(980);
  // It has been told, and waits again.
  expect((await scene.status("k")).waiting).toMatchObject([{ id: "mine" }]);
  await scene.clock.advance(500);
  expect(acquiring.state).toBe("pending");
  expect(next.held).toBe(true);

  await next.release();
  await scene.clock.advance(TTL_MS);
  expect(acquiring).toMatchObject({ state: "fulfilled" });
  expect(acquiring.value?.held).toBe(true);
  expect((await scene.status("k")).held).toMatchObject([{ fence: acquiring.value?.fence }]);
});
