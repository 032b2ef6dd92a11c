import { describe, expect, test } from "vitest";
import { isRunning } from "../engines/engine.ts";
import { runExample } from "./example.ts";

interface Line {
  readonly atS: number;
  readonly who: string;
  readonly what: string;
}

/** Runs an example, and reads its timeline. */
async function run(name: string): Promise<{ code: unknown; lines: Line[]; output: string }> {
  const { code, output } = await runExample(name);
  const lines = [...output.matchAll(/^ *(\d+\.\d\d) s {2}(\S+) +(.*)$/gm)].map(
    ([, atS, who = "", what = ""]) => ({ atS: Number(atS), who, what }),
  );
  return { code, lines, output };
}

function pidsIn(lines: readonly Line[]): number[] {
  return lines.flatMap(({ what }) => /^starts as process (\d+)$/.exec(what)?.[1] ?? []).map(Number);
}

describe.concurrent("examples", () => {
  test("nightly-job: each report is written once, also the one whose writer was killed", {
    timeout: 60_000,
  }, async () => {
    const { code, lines, output } = await run("nightly-job");
    expect(code, output).toBe(0);
    const begun = lines.flatMap(({ who, what }) => {
      const match = /^begins the report of (\S+), attempt (\d), fence (\d+)$/.exec(what);
      return match === null
        ? []
        : [{ who, night: match[1], attempt: match[2], fence: BigInt(match[3] ?? 0) }];
    });
    const [, cut, again] = begun;
    expect(lines).toContainEqual(expect.objectContaining({ who: cut?.who, what: "is dead (SIGKILL)" }));
    expect(again).toMatchObject({ night: cut?.night, attempt: "2" });
    expect(again?.who).not.toBe(cut?.who);
    expect(again?.fence).toBeGreaterThan(cut?.fence ?? 0n);
    expect(output).toContain(`remembers ${cut?.night}, attempt 1: lost`);
    expect(output).toContain(`remembers ${cut?.night}, attempt 2: completed`);
    expect(pidsIn(lines).filter(isRunning)).toEqual([]);
  });

  test("leader-loop: one leads at a time, and the next after a crash or a resignation", {
    timeout: 60_000,
  }, async () => {
    const { code, lines, output } = await run("leader-loop");
    expect(code, output).toBe(0);
    let leader: string | undefined;
    for (const { who, what } of lines) {
      if (what.startsWith("leads, fence")) {
        expect(leader, output).toBeUndefined();
        leader = who;
      } else if (what.startsWith("hands out")) expect(who, output).toBe(leader);
      else if ((what === "leads no longer" || what.startsWith("is dead")) && who === leader)
        leader = undefined;
    }
    expect(lines.filter(({ what }) => what.startsWith("leads, fence"))).toHaveLength(3);
    expect(pidsIn(lines).filter(isRunning)).toEqual([]);
  });
});
