/** Who leaves a record alone for how long, once he has seen the grant that begins a lull. */
import { casStore } from "holdfast/cas";
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";
import { MapDatabase, mapDriver } from "../../../examples/driver/map-driver.ts";
import { knownFrom } from "../../../src/stores/cas/known.ts";
import { Lane } from "../../../src/stores/cas/lane.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { createScene, wait } from "./scene.ts";

const ROUND_TRIP_MS = 4;
/** The end of a quarter of a second that is not the end of two seconds, whose lull is longer. */
const DUE_MS = Date.UTC(2030, 0, 1) + 250;

interface Look {
  /** How long before a lull is due the record was granted. */
  readonly beforeMs: number;
  /** How long ago that is for who looks. */
  readonly agoMs?: number;
  /** How often in a row he has lost. */
  readonly losses: number;
}

/** A process that has lost, and the pause that it makes when it sees somebody else's grant in a record that others wait for. */
async function pauseAfter({ beforeMs, agoMs = 0, losses }: Look): Promise<number> {
  const grantedAtMs = DUE_MS - beforeMs;
  // The time of a grant is the latest that it may be, which is a millisecond later.
  const clock = new ManualClock(grantedAtMs - 1);
  const database = new MapDatabase(() => clock.wallMs());
  const store = casStore(mapDriver(database), { clock });
  await store.acquire(claimRequest("holder"));
  await store.acquire(wait("k", "waiter"));
  await store.close();
  const lane = new Lane("k");
  for (let count = 0; count < losses; count++) lane.lost(clock.monotonicMs(), ROUND_TRIP_MS, 0);
  lane.known = knownFrom(database.rows.get("k"), "k");
  const look = () => lane.seen(clock.monotonicMs(), ROUND_TRIP_MS, grantedAtMs + agoMs);
  look();
  const pauseMs = lane.pauseMs(clock);
  // It is kept once, however often that grant is seen.
  await clock.advance(pauseMs);
  look();
  expect(lane.pauseMs(clock)).toBe(0);
  return pauseMs;
}

test("cas: who has lost keeps a lull as the others do, for three of its round trips after the grant", async () => {
  expect(await pauseAfter({ beforeMs: 5, losses: 0 })).toBe(12);
  expect(await pauseAfter({ beforeMs: 5, losses: 1 })).toBe(12);
  expect(await pauseAfter({ beforeMs: 5, losses: 2 })).toBe(12);
  expect(await pauseAfter({ beforeMs: 20, losses: 1, agoMs: 7 })).toBe(5);
  expect(await pauseAfter({ beforeMs: 20, losses: 1, agoMs: 12 })).toBe(0);
});

test("cas: who has lost three times in a row keeps no lull, as it is for him", async () => {
  expect(await pauseAfter({ beforeMs: 5, losses: 3 })).toBe(0);
});

test("cas: a grant that is too early for a lull begins none", async () => {
  expect(await pauseAfter({ beforeMs: 21, losses: 0 })).toBe(0);
  expect(await pauseAfter({ beforeMs: 125, losses: 1 })).toBe(0);
});

test("cas: who loses to the grant that begins a lull goes again only after it", async () => {
  const { clock, process, soon } = createScene();
  const [near, far] = [process(), process()];
  far.usual = { thereMs: ROUND_TRIP_MS / 2, backMs: ROUND_TRIP_MS / 2 };
  const permit = (id: string) => claimRequest(id, { limit: 2, ttlMs: 30_000 });
  await soon(far.store.acquire(permit("far")));
  // Granted five milliseconds before the lull is due.
  await clock.advance(DUE_MS - 6 - clock.wallMs());
  await soon(near.store.acquire(permit("near")));
  far.requests.splice(0);
  const renewing = far.store.renew([permit("far")]);
  const sentAtMs: number[] = [];
  for (let ms = 0; ms < 20; ms++) {
    await clock.advance(ms === 0 ? 0 : 1);
    while (sentAtMs.length < far.requests.length) sentAtMs.push(ms);
  }
  // The reply is back after four, and was made when the grant was one old: that leaves eleven of the lull's twelve.
  expect(sentAtMs).toEqual([0, 15]);
  expect(await renewing).toMatchObject([{ state: "held" }]);
});
