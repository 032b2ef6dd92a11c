/** How quick the disk is of late, and when this process stays awake for its answers. */
import { describe, expect, test } from "vitest";
import { StayAwake } from "../../../src/platform/index.ts";
import { DiskPace } from "../../../src/stores/file/disk-pace.ts";

/** A pace, and whether the event loop is kept turning. */
function opened() {
  const turns: (() => void)[] = [];
  const awake = new StayAwake({ nowMs: () => 0, nextTurn: (turn) => turns.push(turn), processors: 2 });
  return { pace: new DiskPace(awake), turns };
}

/** What the thread says with each of many answers. */
function tell(pace: DiskPace, diskMs: number, isAlone: boolean): void {
  for (let answer = 0; answer < 100; answer++) pace.told({ diskMs, isAlone });
}

describe("file: the pace of the disk", () => {
  test("follows what the latest changes took", () => {
    const { pace } = opened();
    tell(pace, 0.3, true);
    expect(pace.diskMs).toBeCloseTo(0.3);
    pace.told({ diskMs: 10.3, isAlone: true });
    expect(pace.diskMs).toBeCloseTo(1.3);
    tell(pace, 0.3, true);
    expect(pace.diskMs).toBeCloseTo(0.3);
  });

  test("keeps the event loop turning until the answer has come, for a quick disk that nobody else uses", () => {
    const { pace, turns } = opened();
    tell(pace, 0.3, true);
    const wait = pace.sent();
    turns.shift()?.();
    expect(turns).toHaveLength(1);
    pace.answered(wait);
    turns.shift()?.();
    expect(turns).toEqual([]);
  });

  test.each([
    { what: "before anything is known of it", known: [] },
    { what: "while others use the folder", known: [[0.3, false]] },
    { what: "for a disk that takes a millisecond and more", known: [[1.1, true]] },
    {
      what: "since others came",
      known: [
        [0.3, true],
        [0.3, false],
      ],
    },
    {
      what: "since the disk became slow",
      known: [
        [0.3, true],
        [1.1, true],
      ],
    },
  ] as const)("lets the process sleep $what", ({ known }) => {
    const { pace, turns } = opened();
    for (const [diskMs, isAlone] of known) tell(pace, diskMs, isAlone);
    expect(pace.sent()).toBeUndefined();
    expect(turns).toEqual([]);
    pace.answered(undefined);
  });
});
