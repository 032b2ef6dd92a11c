/**
 * The clock of a folder. Its rules are pure, so that every restart and every change of the wall clock can be put to them;
 * and the folder is shown to keep them.
 */
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { describe, expect, test } from "vitest";
import {
  alignedTime,
  firstTime,
  namespaceOffset,
  readBoot,
  readMonotonicMs,
  resumedTime,
  timeOf,
} from "../../../src/stores/file/clock.ts";
import { testFolder } from "./folders.ts";
import { skipped } from "./mounts.ts";
import { changeState, readState } from "./raw-files.ts";

const HOUR_MS = 3_600_000;
const first = { boot: "a", monotonicMs: 1_000_000, wallMs: 1_700_000_000_000 };
/** A change was made 5 s after the folder was. */
const kept = {
  ...firstTime(first),
  lastMs: first.wallMs + 5_000,
  lastMonotonicMs: first.monotonicMs + 5_000,
};

describe("file: the clock of a folder", () => {
  test("begins with the wall clock, and goes on with the monotonic one", () => {
    expect(timeOf(kept, first.monotonicMs + 7_000)).toBe(first.wallMs + 7_000);
  });

  test.for([-HOUR_MS, 0, HOUR_MS])("does not heed that the wall clock was set by %i ms", (byMs) => {
    const machine = {
      boot: "a",
      monotonicMs: first.monotonicMs + 9_000,
      wallMs: first.wallMs + 9_000 + byMs,
    };
    expect(resumedTime(kept, machine)).toBe(kept);
  });

  test.for([-HOUR_MS, 60_000, 24 * HOUR_MS])(
    "after a restart of the machine, counts only the time since, whatever the wall clock says (%i ms)",
    (byMs) => {
      const machine = { boot: "b", monotonicMs: 20_000, wallMs: first.wallMs + byMs };
      const resumed = resumedTime(kept, machine);
      // The machine was off for an unknown time, and on for 20 s.
      expect(timeOf(resumed, 20_000)).toBe(kept.lastMs + 20_000);
      expect(timeOf(resumed, 21_000)).toBe(kept.lastMs + 21_000);
    },
  );

  test("goes on over several restarts, and never back", () => {
    const second = resumedTime(kept, { boot: "b", monotonicMs: 20_000, wallMs: 0 });
    const third = resumedTime(second, { boot: "c", monotonicMs: 3_000, wallMs: 0 });
    expect(timeOf(third, 3_000)).toBe(kept.lastMs + 23_000);
    expect(timeOf(third, 0)).toBe(kept.lastMs + 23_000);
  });

  test("without a name of the run, a monotonic clock that is behind tells of a restart", () => {
    const nameless = { ...kept, boot: "" };
    const restarted = resumedTime(nameless, { boot: "", monotonicMs: 20_000, wallMs: 0 });
    expect(timeOf(restarted, 20_000)).toBe(kept.lastMs + 20_000);
    const later = { boot: "", monotonicMs: kept.lastMonotonicMs + 1, wallMs: 0 };
    // Or the machine was restarted long ago: then more time has passed than this, and never less.
    expect(resumedTime(nameless, later)).toBe(nameless);
  });

  test("catches up with the wall clock when it may, and never goes back to it", () => {
    const resumed = resumedTime(kept, { boot: "b", monotonicMs: 20_000, wallMs: 0 });
    const ahead = { boot: "b", monotonicMs: 20_000, wallMs: first.wallMs + HOUR_MS };
    expect(timeOf(alignedTime(resumed, ahead), 21_000)).toBe(first.wallMs + HOUR_MS + 1_000);
    const behind = { ...ahead, wallMs: first.wallMs - HOUR_MS };
    expect(alignedTime(resumed, behind)).toBe(resumed);
  });

  test("is the machine's, also in a container with an offset", () => {
    expect(namespaceOffset("monotonic           0         0\nboottime            0         0\n")).toBe(0);
    expect(namespaceOffset("monotonic      864000 500000000\nboottime       864000         0\n")).toBe(
      864_000_500,
    );
    expect(namespaceOffset("")).toBe(0);
  });

  const isLinux = process.platform === "linux";
  if (!isLinux) skipped("file: the test of the kernel's run", "only Linux names it");
  test.skipIf(!isLinux)("is known by the run of the kernel", () => {
    expect(readBoot()).toMatch(/^[0-9a-f-]{36}$/);
    expect(readMonotonicMs()).toBeGreaterThan(0);
  });
});

describe("file: a machine that was restarted", () => {
  /** That run had gone on for longer than this one. */
  const restart = (folder: string, lastMs: number) =>
    changeState(folder, { boot: "another", offsetMs: 0, lastMonotonicMs: Number.MAX_SAFE_INTEGER, lastMs });

  test("keeps held locks until their time is up, and its fences grow", async () => {
    const folder = testFolder();
    const before = createLocks(fileStore(folder));
    const released = await before.mutex("released").run(({ fence }) => fence);
    await before.close();
    // The claim of a client on another machine, through a server on this one.
    const store = fileStore(folder);
    const { state } = await store.acquire({
      ...{ key: "held", id: "remote", token: "remote", weight: 1, limit: 1, priority: 0, wait: false },
      ...{ ttlMs: 86_400_000, owner: "", info: "", application: "" },
    });
    expect(state).toBe("held");
    await store.close();
    // However long this machine has been on, it is a moment after the latest change.
    const lastMs = (await readState(folder)).lastMs - readMonotonicMs();
    await restart(folder, lastMs);

    const after = createLocks(fileStore(folder));
    expect(await after.mutex("held").tryAcquire()).toBeNull();
    const next = await after.mutex("released").run(({ fence }) => fence);
    expect(next).toBeGreaterThan(released);
    await after.close();
    const resumed = await readState(folder);
    expect(resumed.offsetMs).toBeGreaterThanOrEqual(lastMs);
    expect(resumed.boot).toBe(readBoot());
  });

  test("moves forward to the wall clock if no record has a claim", async () => {
    const folder = testFolder();
    const before = createLocks(fileStore(folder));
    const fence = await before.mutex("released").run((lease) => lease.fence);
    await before.close();
    await restart(folder, 1_000_000_000_000);

    const after = createLocks(fileStore(folder));
    const nowMs = Date.now();
    const acquiredAtMs = await after.mutex("other").run(async () => {
      const { held } = await after.inspect("other");
      return held[0]?.acquiredAtMs ?? 0;
    });
    expect(Math.abs(acquiredAtMs - nowMs)).toBeLessThan(60_000);
    expect(await after.mutex("released").run((lease) => lease.fence)).toBeGreaterThan(fence);
    await after.close();
  });
});
