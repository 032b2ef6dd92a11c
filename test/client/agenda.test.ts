import fc from "fast-check";
import { expect, test } from "vitest";
import { Agenda, type Planned, UNTRACKED } from "../../src/client/agenda.ts";

interface Claim extends Planned {
  dueMs: number;
}

const claimDue = (dueMs: number): Claim => ({ dueMs, wakeMs: 0, slot: UNTRACKED, isFar: false });

/** One of a few claims becomes due at some time, is looked at, or goes. */
const step = fc.record({
  does: fc.constantFrom("plan", "look", "remove"),
  which: fc.nat(11),
  dueMs: fc.nat(100),
});

test("agenda: whatever happens, no claim is looked at too late, and none is lost", () => {
  fc.assert(
    // Long ones: it takes some steps until a claim is in the far heap and another one comes after it in the near one.
    fc.property(fc.array(step, { maxLength: 200, size: "max" }), (steps) => {
      const agenda = new Agenda<Claim>();
      const claims = Array.from({ length: 12 }, () => claimDue(0));
      for (const { does, which, dueMs } of steps) {
        const claim = claims[which]!;
        const tracked = claim.slot !== UNTRACKED;
        if (does === "plan") {
          claim.dueMs = dueMs;
          agenda.plan(claim);
        } else if (does === "remove" && tracked) agenda.remove(claim);
        else if (does === "look") {
          const { next } = agenda;
          if (next !== undefined && next.wakeMs < next.dueMs) agenda.postpone(next);
        }
        const open = claims.filter(({ slot }) => slot !== UNTRACKED);
        expect(new Set(agenda.all())).toEqual(new Set(open));
        expect(agenda.isEmpty).toBe(open.length === 0);
        expect(open.every((one) => one.wakeMs <= one.dueMs)).toBe(true);
        expect(agenda.next?.wakeMs ?? Number.POSITIVE_INFINITY).toBe(
          Math.min(...open.map(({ wakeMs }) => wakeMs)),
        );
      }
    }),
  );
});

test("agenda: a claim that is looked at before it is due leaves the way free for new ones", () => {
  const agenda = new Agenda<Claim>();
  const lease = claimDue(10);
  expect(agenda.plan(lease)).toBe(true);
  lease.dueMs = 50;
  expect(agenda.plan(lease)).toBe(false);
  expect(lease).toMatchObject({ wakeMs: 10, isFar: false });
  agenda.postpone(lease);
  expect(lease).toMatchObject({ wakeMs: 50, isFar: true });
  // Its release is due sooner than its next heartbeat.
  lease.dueMs = 20;
  expect(agenda.plan(lease)).toBe(true);
  expect(lease).toMatchObject({ wakeMs: 20, isFar: true });
});
