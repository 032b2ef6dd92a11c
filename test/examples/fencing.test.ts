/** The examples about fenced writes. */
import { describe, expect, test } from "vitest";
import { runExample } from "./example.ts";

/** The output of the example. Fails unless it ends with exit code 0. */
async function outputOf(name: string): Promise<string> {
  const { output, code } = await runExample(name);
  expect(code, output).toBe(0);
  return output;
}

describe("examples", () => {
  test("paused-holder: the write of a former holder lands without a fence, and is refused with one", async () => {
    const output = await outputOf("paused-holder");
    const grants = [...output.matchAll(/client-(\d) +holds the lock, with fence (\d+)/g)];
    expect(grants.map(([, client]) => client)).toEqual(["1", "2"]);
    expect(BigInt(grants[1]![2]!)).toBeGreaterThan(BigInt(grants[0]![2]!));
    expect(output).toContain("client-2   plain.txt is written, fenced.txt is written");
    expect(output).toContain("client-1   plain.txt is written, fenced.txt is refused: STALE_FENCE");
    expect(output).toContain("plain.txt:  written by client-1");
    expect(output).toContain("fenced.txt: written by client-2");
  }, 60_000);

  test("outbox-relay: every message is marked once, by the holder of the lock", async () => {
    const output = await outputOf("outbox-relay");
    expect(output.match(/^relay-\d published .*$/gm)).toEqual([
      "relay-1 published 1: ordered apples",
      "relay-1 published 2: ordered pears",
      "relay-1 published 3: ordered plums",
      "relay-2 published 3: ordered plums",
      "relay-2 published 4: ordered quinces",
    ]);
    expect(output).toContain("relay-1 is refused: STALE_FENCE");
    expect(output).toContain("unsent: 0");
    const fences = [...output.matchAll(/message (\d) was marked by the holder of fence (\d+)/g)].map(
      ([, , fence]) => fence,
    );
    expect(fences).toHaveLength(4);
    expect([fences[0], fences[2]]).toEqual([fences[1], fences[3]]);
    expect(BigInt(fences[2]!)).toBeGreaterThan(BigInt(fences[0]!));
  }, 60_000);

  test("migration-guard: one replica migrates, the others find nothing to do, and a late one is refused", async () => {
    const output = await outputOf("migration-guard");
    const lines = output.match(/^replica-\d applied .*$/gm)?.map((line) => line.replace(/^replica-\d /, ""));
    expect(lines).toEqual([
      "applied 001-customers, 002-orders, 003-names",
      "applied nothing",
      "applied nothing",
    ]);
    expect(output).toContain("the outdated replica is refused: STALE_FENCE");
    expect(output).toContain("applied: 001-customers, 002-orders, 003-names");
  }, 60_000);
});
