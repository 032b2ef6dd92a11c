import type { KeyStatus } from "holdfast";
import { expect, test } from "vitest";
import { Scene } from "./scene.ts";

/** What is left of something on its way through JSON. */
const throughJson = <T>(value: T): Record<string, unknown> => JSON.parse(JSON.stringify(value));

test("what inspect and list show can be written as JSON, with fences as strings", async () => {
  const scene = new Scene();
  const lock = scene.locks.mutex("k");
  const lease = scene.keep(await lock.acquire({ id: "held" }));
  scene.begin(lock.acquire({ id: "waiting" }));
  await scene.clock.advance(0);
  const listed: KeyStatus[] = [];
  for await (const status of scene.locks.list()) listed.push(status);
  const fence = lease.fence.toString();
  const expected = {
    key: "k",
    fence,
    held: [{ id: "held", state: "held", fence }],
    waiting: [{ id: "waiting", state: "waiting" }],
  };
  expect(throughJson(await scene.locks.inspect("k"))).toMatchObject(expected);
  expect(throughJson(await lock.inspect())).toMatchObject(expected);
  expect(throughJson(listed)).toMatchObject([expected]);
  const [status] = listed;
  expect(throughJson(status?.held)).toMatchObject(expected.held);
  // To everybody else they are what they were.
  expect(Object.keys(status as KeyStatus)).not.toContain("toJSON");
  expect(status?.held[0]?.fence).toBe(lease.fence);
  expect(structuredClone(status)).toEqual(status);
});

test("so can the state of a lease, who leads, and what a schedule has run", async () => {
  const scene = new Scene();
  const lease = scene.keep(await scene.locks.mutex("k").acquire());
  const fence = lease.fence.toString();
  expect(throughJson(lease.state)).toMatchObject({ id: lease.id, fence, held: true });
  expect(throughJson((await lease.watch().next()).value)).toMatchObject({ fence });

  const election = scene.locks.election("office");
  const ended = election.lead(async () => {
    const [leader] = [await election.leader()];
    const text = leader?.fence.toString();
    expect(throughJson(leader)).toMatchObject({ fence: text, self: true });
    expect(throughJson(election.status())).toMatchObject({ fence: text });
    expect(throughJson((await election.observe().next()).value)).toMatchObject({ leader: { fence: text } });
    void election.resign();
  });
  await scene.clock.advance(10);
  await ended;

  const schedule = scene.locks.schedule("job", "* * * * * *", () => {});
  await scene.clock.advance(1_500);
  await schedule.stop();
  const [run] = await schedule.history();
  expect(throughJson(run)).toMatchObject({ fence: run?.fence.toString(), tick: run?.tick.toISOString() });
});
