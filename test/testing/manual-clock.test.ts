import { ManualClock, settled } from "holdfast/testing";
import { describe, expect, test } from "vitest";

describe("ManualClock", () => {
  test("time stands still until it is told to go on", async () => {
    const clock = new ManualClock();
    const before = [clock.wallMs(), clock.monotonicMs()];
    await settled();
    expect([clock.wallMs(), clock.monotonicMs()]).toEqual(before);
    await clock.advance(250);
    expect([clock.wallMs(), clock.monotonicMs()]).toEqual(before.map((ms) => ms + 250));
  });

  test("it starts at the wall time it is given, and its monotonic time elsewhere", () => {
    const clock = new ManualClock(5_000_000);
    expect(clock.wallMs()).toBe(5_000_000);
    expect(clock.monotonicMs()).not.toBe(clock.wallMs());
  });

  test("timers fire in order of time, and of setting among equals", async () => {
    const clock = new ManualClock();
    const fired: string[] = [];
    clock.setTimer(20, () => fired.push("late"));
    clock.setTimer(10, () => fired.push("first"));
    clock.setTimer(10, () => fired.push("second"));
    clock.setTimer(-5, () => fired.push("overdue"));
    await clock.advance(10);
    expect(fired).toEqual(["overdue", "first", "second"]);
    await clock.advance(9);
    expect(fired).toHaveLength(3);
    await clock.advance(1);
    expect(fired).toHaveLength(4);
  });

  test("a timer sees the time it was set for, and what it sets in motion runs before the next one", async () => {
    const clock = new ManualClock();
    const startMs = clock.monotonicMs();
    const seen: string[] = [];
    clock.setTimer(10, () => {
      void Promise.resolve().then(() => seen.push(`then ${clock.monotonicMs() - startMs}`));
      clock.setTimer(5, () => seen.push(`nested ${clock.monotonicMs() - startMs}`));
    });
    clock.setTimer(20, () => seen.push(`last ${clock.monotonicMs() - startMs}`));
    await clock.advance(30);
    expect(seen).toEqual(["then 10", "nested 15", "last 20"]);
  });

  test("a cancelled timer does not fire, and pendingTimers counts the others", async () => {
    const clock = new ManualClock();
    const fired: string[] = [];
    const timer = clock.setTimer(10, () => fired.push("cancelled"));
    clock.setTimer(10, () => fired.push("kept"));
    expect(clock.pendingTimers).toBe(2);
    timer.cancel();
    timer.cancel();
    expect(clock.pendingTimers).toBe(1);
    await clock.advance(10);
    expect(fired).toEqual(["kept"]);
    expect(clock.pendingTimers).toBe(0);
  });

  test("what is due during a block fires afterwards, late", async () => {
    const clock = new ManualClock();
    const startMs = clock.monotonicMs();
    const fired: number[] = [];
    clock.setTimer(10, () => fired.push(clock.monotonicMs() - startMs));
    clock.block(100);
    await settled();
    expect(fired).toEqual([]);
    await clock.advance(0);
    expect(fired).toEqual([100]);
  });

  test("a timer that blocks past the end of an advance does not turn time back", async () => {
    const clock = new ManualClock();
    const startMs = clock.monotonicMs();
    clock.setTimer(5, () => clock.block(100));
    await clock.advance(10);
    expect(clock.monotonicMs() - startMs).toBe(105);
  });

  test("setting the wall clock leaves the monotonic time and the timers alone", async () => {
    const clock = new ManualClock();
    const startMs = clock.monotonicMs();
    let fired = false;
    clock.setTimer(10, () => {
      fired = true;
    });
    clock.setWall(0);
    expect(clock.wallMs()).toBe(0);
    expect(clock.monotonicMs()).toBe(startMs);
    await clock.advance(10);
    expect(fired).toBe(true);
    expect(clock.wallMs()).toBe(10);
  });

  test("settled waits for everything that promises have set in motion", async () => {
    let steps = 0;
    void (async () => {
      for (; steps < 50; steps++) await undefined;
    })();
    await settled();
    expect(steps).toBe(50);
  });
});
